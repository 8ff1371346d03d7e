"""Tries whether this host's own kernel can carry the lab; the trial leaves nothing behind.

How a run uses it is `machines.host`'s. Standard library only.
"""

import os
import subprocess
from collections.abc import Iterable

IN_NAMESPACES = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net")
"""A command that makes a program the first of its own process, mount and network namespaces: when
it ends, all other processes in them end, and their interfaces and mounts are gone."""

NAMESPACES = "network namespaces"
"""What the host lacks if not even the first trial could start."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH of the machine: an ordinary user's lacks the folders of tc and sysctl."""

TRIALS = {
    "veth": "ip link add trial0 type veth peer name trial1",
    "bridge": "ip link add trial2 type bridge",
    "gso_max_segs": "ip link set trial0 gso_max_segs 1",
    "HTB": "tc qdisc add dev trial0 root handle 1: htb default 1"
    " && tc class add dev trial0 parent 1: classid 1:1 htb rate 1mbit",
    "netem": "tc qdisc add dev trial0 parent 1:1 handle 10: netem delay 1ms loss 1%",
    "pfifo": "tc qdisc add dev trial0 parent 10:1 handle 20: pfifo limit 10",
}
"""What a link needs, as shell commands, each of which builds on those before it."""

IPSEC_TRIALS = {
    "IPsec with AES-GCM": "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1"
    f" mode transport aead 'rfc4106(gcm(aes))' 0x{1:040x} 128"
    " && ip xfrm policy add src 192.0.2.1 dst 192.0.2.2 dir out tmpl proto esp mode transport",
    "u32 filters": "tc filter add dev trial0 parent 1: protocol all"
    " u32 match u8 50 0xff at 9 flowid 1:1",
}
"""What relays also need for a variant with IPsec, whose packets are counted."""


def refusal(
    congestion_controls: Iterable[str] = (),
    queue_disciplines: Iterable[str] = (),
    *,
    ipsec: bool = False,
) -> str:
    """Return what this host's kernel lacks, with the error that shows it, or "" if nothing.

    Needs no root where the kernel lets users create namespaces. The kernel may load modules for it,
    as it would for a run.

    Args:
        congestion_controls: the nodes' congestion controls.
        queue_disciplines: the links' queue disciplines, which replace pfifo.
        ipsec: whether there is ESP between relays.
    """
    trials = TRIALS | {
        name: f"tc qdisc replace dev trial0 parent 10:1 handle {handle}: {name}"
        for handle, name in enumerate(queue_disciplines, start=21)
    }
    if ipsec:
        trials |= IPSEC_TRIALS
    trials |= {
        # A kernel may have one and yet not allow it in namespaces unless this setting names it.
        f"{name} in net.ipv4.tcp_allowed_congestion_control": (
            f"sysctl --quiet --write net.ipv4.tcp_congestion_control={name}"
        )
        for name in congestion_controls
    }
    script = "\n".join(
        f"{{ {trial}; }} || {{ echo '{what}'; exit 1; }}" for what, trial in trials.items()
    )
    as_root = () if os.geteuid() == 0 else ("--user", "--map-root-user")
    try:
        answer = subprocess.run(
            [*IN_NAMESPACES, *as_root, "sh", "-c", script],
            capture_output=True,
            text=True,
            env={**os.environ, "PATH": PATH},
            check=False,
        )
    except OSError as error:
        return f"no {IN_NAMESPACES[0]} ({error.strerror})"
    if answer.returncode == 0:
        return ""
    lacking = answer.stdout.strip() or NAMESPACES
    errors = answer.stderr.strip().splitlines() or ["no reason given"]
    return f"no {lacking} ({errors[0]})"
