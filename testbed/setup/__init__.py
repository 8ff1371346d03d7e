"""Set-up: packages, environment, sources, builds, and the doctor that reports on them.

Nothing here knows plans or runs. Its entry points are `ready.ensure_ready` and
`doctor.print_doctor`.
"""
