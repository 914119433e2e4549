"""Kernels as PTX text, which the driver itself assembles: each does a number of instructions that is known.

Every kernel is `work`, and takes the address of 4 bytes that are written to if a result is what it never is, so that
nothing is left out as unused; `copy` takes addresses of what it reads and writes. What ptxas makes of them was checked:
one tensor instruction for each mma (tests/test_verify_ptx.py says how).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

UNROLL = 8
"""Instructions in a turn of a loop, each with a sum of its own, so that none waits for the one before."""
NEVER = "0f7F7FFFFF"
"""A sum that does not come about (the largest float)."""


@dataclass(frozen=True)
class Product:
    """A tensor instruction: `mma` names it, `sums` is their PTX type, `factors` the registers of A and of B, `more`
    what follows them. `flop` it does; PTX `version` and the least compute capability that has it natively."""

    mma: str
    flop: int
    sums: str = "f32"
    more: str = ""
    version: str = "7.0"
    least: tuple[int, int] = (8, 0)
    own_target: bool = False


def _flop(m: int, n: int, k: int) -> int:
    return 2 * m * n * k


PRODUCTS = {
    "bf16": Product("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", _flop(16, 8, 16)),
    "fp16": Product("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", _flop(16, 8, 16)),
    "int8": Product("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", _flop(16, 8, 32), sums="s32"),
    "fp8": Product(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32", _flop(16, 8, 32), version="8.4", least=(8, 9)
    ),
    "fp4": Product(
        "mma.sync.aligned.kind::mxf4.block_scale.scale_vec::2X.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
        _flop(16, 8, 64),
        more=", %scale, {0, 0}, %scale, {0, 0}",
        version="8.8",
        least=(12, 0),
        own_target=True,
    ),
}
"""By the type of their factors. Hopper and SM 10.x have fp8 and fp4 in other instructions alone, and there mma.sync of
them is widened first."""
WIDENED = {"fp8": (9, 10), "fp4": (9, 10)}
"""Majors of compute capabilities where mma.sync of that type is not native."""


def products(capability: tuple[int, int]) -> tuple[str, ...]:
    """The types whose mma.sync this compute capability does natively."""
    return tuple(
        kind for kind, of in PRODUCTS.items() if capability >= of.least and capability[0] not in WIDENED.get(kind, ())
    )


def text(kernel: str, capability: tuple[int, int]) -> str:
    """The PTX of a kernel: a type of PRODUCTS, or one of OTHERS."""
    if kernel in PRODUCTS:
        of = PRODUCTS[kernel]
        target = f"sm_{capability[0]}{capability[1]}a" if of.own_target else f"sm_{of.least[0]}{of.least[1]}"
        return _module(of.version, target, _turns(_mma(of), of.sums))
    return _module("7.0", "sm_80", OTHERS[kernel]())


def _module(version: str, target: str, body: str) -> str:
    return f".version {version}\n.target {target}\n.address_size 64\n\n{body}"


def _turns(turn: str, sums: str) -> str:
    """A loop of `count` turns over UNROLL x 4 sums, %d0 and up; factors are of the lane's number, which is small."""
    registers = UNROLL * 4
    zero = "0f00000000" if sums == "f32" else "0"
    clear = "\n".join(f"    mov.{_bits(sums)} %d{k}, {zero};" for k in range(registers))
    total = "\n".join(f"    add.{sums} %d0, %d0, %d{k};" for k in range(1, registers))
    never = NEVER if sums == "f32" else "2147483647"
    return f"""\
.visible .entry work(.param .u64 out, .param .u32 count)
{{
    .reg .pred %more, %kept;
    .reg .b32 %a<4>, %b<2>, %scale;
    .reg .u32 %left;
    .reg .u64 %out;
    .reg .{_bits(sums)} %d<{registers}>, %x;
    ld.param.u64 %out, [out];
    ld.param.u32 %left, [count];
    mov.u32 %a0, %laneid;
    mov.u32 %a1, %laneid;
    mov.u32 %a2, %laneid;
    mov.u32 %a3, %laneid;
    mov.u32 %b0, %laneid;
    mov.u32 %b1, %laneid;
    mov.u32 %scale, 0x7f7f7f7f;
    mov.{_bits(sums)} %x, {"0f3F800000" if sums == "f32" else "1"};
{clear}
TURN:
{turn}
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra TURN;
{total}
    setp.eq.{sums} %kept, %d0, {never};
    @%kept st.global.{_bits(sums)} [%out], %d0;
    ret;
}}
"""


def _bits(sums: str) -> str:
    return "f32" if sums == "f32" else "b32"


def _mma(of: Product) -> str:
    return "\n".join(f"    {of.mma} {d}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {d}{of.more};" for d in _sums())


def _sums() -> Iterator[str]:
    """The registers of each instruction's sums."""
    for k in range(0, UNROLL * 4, 4):
        yield f"{{%d{k}, %d{k + 1}, %d{k + 2}, %d{k + 3}}}"


def _fma() -> str:
    """UNROLL x 4 products and sums of single numbers a turn, on the CUDA cores."""
    return _turns("\n".join(f"    fma.rn.f32 %d{k}, %d{k}, %x, %x;" for k in range(UNROLL * 4)), "f32")


def _spin() -> str:
    """Waits until the SM's clock is `count` x 1024 cycles on."""
    return """\
.visible .entry work(.param .u64 out, .param .u32 count)
{
    .reg .pred %more;
    .reg .u32 %count;
    .reg .u64 %begun, %now, %cycles;
    mov.u64 %begun, %clock64;
    ld.param.u32 %count, [count];
    mul.wide.u32 %cycles, %count, 1024;
TURN:
    mov.u64 %now, %clock64;
    sub.u64 %now, %now, %begun;
    setp.lt.u64 %more, %now, %cycles;
    @%more bra TURN;
    ret;
}
"""


def _copy() -> str:
    """Reads `count` pieces of 16 bytes and writes each once; threads take turns."""
    return """\
.visible .entry work(.param .u64 from, .param .u64 to, .param .u64 count)
{
    .reg .pred %done;
    .reg .u32 %block, %blocks, %threads, %thread, %w<4>;
    .reg .u64 %from, %to, %count, %at, %step, %place, %in, %out, %t;
    ld.param.u64 %from, [from];
    ld.param.u64 %to, [to];
    ld.param.u64 %count, [count];
    mov.u32 %block, %ctaid.x;
    mov.u32 %blocks, %nctaid.x;
    mov.u32 %threads, %ntid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %at, %block, %threads;
    cvt.u64.u32 %t, %thread;
    add.u64 %at, %at, %t;
    mul.wide.u32 %step, %blocks, %threads;
    setp.ge.u64 %done, %at, %count;
    @%done bra END;
TURN:
    shl.b64 %place, %at, 4;
    add.u64 %in, %from, %place;
    add.u64 %out, %to, %place;
    ld.global.v4.u32 {%w0, %w1, %w2, %w3}, [%in];
    st.global.v4.u32 [%out], {%w0, %w1, %w2, %w3};
    add.u64 %at, %at, %step;
    setp.lt.u64 %done, %at, %count;
    @%done bra TURN;
END:
    ret;
}
"""


OTHERS: dict[str, Callable[[], str]] = {"fma": _fma, "spin": _spin, "copy": _copy}
FMA_A_TURN = UNROLL * 4
"""FMA instructions of a warp in a turn."""
SPIN_CYCLES = 1024
"""SM cycles of a count of `spin`."""
