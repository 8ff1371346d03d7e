"""One processor for all runs: the features that the guest's libraries may use, on every host.

Libraries choose their code by the processor's features, and so the number of their system calls:
OpenSSL asks for the process's number each time it draws keys, and the loader looks for libraries in
a folder for each generation of processors. Both can be set by a variable. So can the C library's
heap, whose calls depend on the program's length.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.basics.errors import TestbedError

CPUINFO = Path("/proc/cpuinfo")

NEEDED = ("aes", "pclmulqdq", "popcnt", "sse4_1", "sse4_2", "ssse3")
"""AES, and what x86-64-v2 adds to the first generation, by Linux's names."""

NOT_USED = (
    *("AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA", "LZCNT", "MOVBE"),
    *("AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"),
)
"""What x86-64-v3 and v4 add (System V ABI, AMD64 supplement, 3.1.1), by glibc's names."""

RARE_HEAP_CALLS = ("glibc.malloc.top_pad=4194304", "glibc.malloc.trim_threshold=134217728")
"""A heap grows by 4 MB and hardly ever shrinks. Each call for it takes time on the guest's clock,
and their number depends on where a program's heap begins, which a patch changes."""

_HWCAPS = "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in NOT_USED)

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "GLIBC_TUNABLES": ":".join((_HWCAPS, *RARE_HEAP_CALLS)),
        # CPUID's words in OpenSSL's format: leaf 1 with `NEEDED`, and nothing of leaf 7.
        "OPENSSL_ia32cap": "0x02982203078bfbff:0x0:0x0:0x0:0x0",
    }
)


def check_processor() -> None:
    """Check that this host's processor has all features that programs in the guest use.

    Raises:
        TestbedError: it lacks one; OpenSSL would end by an illegal instruction.
    """
    text = CPUINFO.read_text(encoding="utf-8")
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    if lacking := [name for name in NEEDED if name not in flags]:
        raise TestbedError(
            f"the processor lacks {', '.join(lacking)} ({CPUINFO}, flags), which OpenSSL"
            " uses in every run: in a virtual machine, pass on the host's processor"
        )
