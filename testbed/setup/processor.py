"""One processor for all: what the guest's libraries are told to use of whichever the host has.

Libraries choose their code by the processor, and with it the number of their system calls: OpenSSL
asks for the process's number as often as it draws keys, and the loader looks for libraries in a
folder of each generation of processors. Both take their answer from a variable if there is one.
So does the C library's heap, whose calls depend on the program's length.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from testbed.errors import TestbedError

CPUINFO = Path("/proc/cpuinfo")

NEEDED = ("aes", "pclmulqdq", "popcnt", "sse4_1", "sse4_2", "ssse3")
"""As Linux calls them: those of x86-64-v2 that differ from its first generation, and AES."""

NOT_USED = (
    *("AVX", "AVX2", "BMI1", "BMI2", "F16C", "FMA", "LZCNT", "MOVBE"),
    *("AVX512F", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512VL"),
)
"""What x86-64-v3 and v4 have more (System V ABI, AMD64 supplement, 3.1.1), as glibc calls it."""

RARE_HEAP_CALLS = ("glibc.malloc.top_pad=4194304", "glibc.malloc.trim_threshold=134217728")
"""A heap grows by 4 MB and hardly ever shrinks. Each call for that takes time on the guest's clock,
and how many there are depends on where a program's heap begins: with a patch, elsewhere."""

_HWCAPS = "glibc.cpu.hwcaps=" + ",".join(f"-{name}" for name in NOT_USED)

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "GLIBC_TUNABLES": ":".join((_HWCAPS, *RARE_HEAP_CALLS)),
        # CPUID's words as OpenSSL has them: leaf 1 with `NEEDED`, and nothing of leaf 7.
        "OPENSSL_ia32cap": "0x02982203078bfbff:0x0:0x0:0x0:0x0",
    }
)


def check_processor() -> None:
    """See that this host's processor has what programs in the guest are told that it has.

    Raises:
        TestbedError: it lacks something; in the guest OpenSSL would end by an illegal instruction.
    """
    text = CPUINFO.read_text(encoding="utf-8")
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    if lacking := [name for name in NEEDED if name not in flags]:
        raise TestbedError(
            f"the processor lacks {', '.join(lacking)} ({CPUINFO}, flags), which OpenSSL is"
            " told to use in every run: in a virtual machine, pass on the host's processor"
        )
