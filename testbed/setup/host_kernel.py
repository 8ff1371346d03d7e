"""Whether this host's own kernel can carry the lab, found by trying; nothing is left of the trial.

How a run takes place on it is `machines.host`'s. Standard library only.
"""

import os
import subprocess
from collections.abc import Iterable

IN_NAMESPACES = ("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--net")
"""What makes a program the first of its own process, mount and network namespaces: when it ends,
so do all others in them, and their interfaces and mounts are gone."""

NAMESPACES = "network namespaces"
"""What is lacking where not even the first trial could begin."""

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""As in the machine: an ordinary user's lacks the folders where tc and sysctl are."""

TRIALS = {
    "veth": "ip link add trial0 type veth peer name trial1",
    "bridge": "ip link add trial2 type bridge",
    "gso_max_segs": "ip link set trial0 gso_max_segs 1",
    "HTB": "tc qdisc add dev trial0 root handle 1: htb default 1"
    " && tc class add dev trial0 parent 1: classid 1:1 htb rate 1mbit",
    "netem": "tc qdisc add dev trial0 parent 1:1 handle 10: netem delay 1ms loss 1%",
    "pfifo": "tc qdisc add dev trial0 parent 10:1 handle 20: pfifo limit 10",
}
"""What a link needs, each upon the ones before it, as shell commands."""

IPSEC_TRIALS = {
    "IPsec with AES-GCM": "ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1"
    f" mode transport aead 'rfc4106(gcm(aes))' 0x{1:040x} 128"
    " && ip xfrm policy add src 192.0.2.1 dst 192.0.2.2 dir out tmpl proto esp mode transport",
    "u32 filters": "tc filter add dev trial0 parent 1: protocol all"
    " u32 match u8 50 0xff at 9 flowid 1:1",
}
"""And what the relays need for a variant with IPsec, whose packets are counted."""


def refusal(
    congestion_controls: Iterable[str] = (),
    queue_disciplines: Iterable[str] = (),
    *,
    ipsec: bool = False,
) -> str:
    """Return what this host's kernel lacks, with its own words, or "" if it lacks nothing.

    Needs no root where the kernel lets users make namespaces. It may load modules for it, as it
    would for a run.

    Args:
        congestion_controls: those that the nodes are to have.
        queue_disciplines: those of the links, in the place of pfifo.
        ipsec: whether relays are to have ESP between them.
    """
    trials = TRIALS | {
        name: f"tc qdisc replace dev trial0 parent 10:1 handle {handle}: {name}"
        for handle, name in enumerate(queue_disciplines, start=21)
    }
    if ipsec:
        trials |= IPSEC_TRIALS
    trials |= {
        # Some a kernel has, and allows them to namespaces only if that setting names them.
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
    told = answer.stderr.strip().splitlines() or ["no reason given"]
    return f"no {lacking} ({told[0]})"
