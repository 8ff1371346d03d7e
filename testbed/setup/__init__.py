"""Set-up: packages, environment, sources, builds, and the doctor that says what is there.

Nothing here knows of plans or runs. `ready.ensure_ready` and `doctor.print_doctor` are its doors.
"""
