"""What each spelling of a counter costs, what it counts, and whether it agrees with the plain one.

Runs on a real GPU: `python benchmarks/counter_cost.py OUT.json`. One load at a time, one set at a time.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from cufall_py.sources.cupti import loader  # noqa: E402

loader.load()
from cufall_py.sources.cupti.bindings import BoundPm  # noqa: E402
from cufall_py.sources.cupti.protocol import Config, CuptiError  # noqa: E402

T, E = "sm__pipe_tensor_cycles_active.avg", "sm__cycles_elapsed.avg"
RT = "sm__pipe_tensor_cycles_active_realtime.avg"
TT = "TPC.TriageCompute.sm__pipe_tensor_cycles_active_realtime.avg"
ACT, TACT = "sm__cycles_active.avg", "TPC.TriageCompute.sm__cycles_active.avg"
GR, TGR = "gr__cycles_active.avg", "FE_B.TriageCompute.gr__cycles_active.avg"
GE = "gr__cycles_elapsed.max"
DR, DW, DE = "dram__bytes_read.sum", "dram__bytes_write.sum", "dram__cycles_elapsed.avg"
P = "TPC.TriageCompute.sm__"
SETS: dict[str, list[str]] = {
    "tensor": [T, E],
    "tensor_rt": [RT, E],
    "tensor_tpc": [TT, E],
    "pair": [T, E, GE],
    "pair_rt": [RT, E, GE],
    "rt+gr": [RT, E, GR],
    "tpc+gr+ge": [TT, E, TGR, GE],
    "plain4": [T, E, ACT, GR],
    "rt4": [RT, E, ACT, GR],
    "tpc4": [TT, E, TACT, TGR],
    "rt+tact": [RT, E, TACT],
    "rt4+ge": [RT, E, TACT, GR, GE],
    "rt4+dram": [RT, E, TACT, GR, DR, DW],
    "rt4+dram+de": [RT, E, TACT, GR, DR, DW, DE],
    "rt4+dram+de+ge": [RT, E, TACT, GR, GE, DR, DW, DE],
    "wide": [RT, E, TACT, GR, GE, DR, DW, DE, "pcie__read_bytes.sum", "pcie__write_bytes.sum"],
    "issue": [T, E, "sm__issue_active.avg"],
    "inst_rt": [RT, E, "sm__inst_executed_realtime.sum"],
    "inst_tpc": [RT, E, P + "inst_executed_realtime.sum"],
    "fma_rt": [RT, E, "sm__inst_executed_pipe_fmaheavy_realtime.sum", "sm__inst_executed_pipe_fmalite_realtime.sum"],
    "fma_tpc": [RT, E, P + "inst_executed_pipe_fma_realtime.sum"],
    "fmaheavy_tpc": [RT, E, P + "inst_executed_pipe_fmaheavy_realtime.sum"],
    "alu_rt": [RT, E, "sm__inst_executed_pipe_alu_realtime.sum"],
    "alu_tpc": [RT, E, P + "inst_executed_pipe_alu_realtime.sum"],
    "fp64_rt": [RT, E, "sm__pipe_fp64_cycles_active_realtime.avg"],
    "fp64_tpc": [RT, E, P + "pipe_fp64_cycles_active_realtime.avg"],
    "hmma_rt": [RT, E, "sm__pipe_tensor_op_hmma_cycles_active_realtime.avg"],
    "imma_rt": [RT, E, "sm__pipe_tensor_op_imma_cycles_active_realtime.avg"],
    "dmma": [RT, E, "smsp__pipe_tensor_op_dmma_cycles_active_realtime.avg"],
    "dmma_smc": [RT, E, "SM_C.TriageCompute.smsp__pipe_tensor_op_dmma_cycles_active.avg"],
    "l2": [RT, E, "lts__t_bytes.sum", "lts__cycles_elapsed.avg"],
    "l2_sectors": [RT, E, "lts__t_sectors.sum", "lts__cycles_elapsed.avg"],
    "pcie": [RT, E, "pcie__read_bytes.sum", "pcie__write_bytes.sum", "pcie__cycles_elapsed.avg"],
    "c2c": [RT, E, "ctc__rx_bytes_data_user.sum", "ctc__tx_bytes_data_user.sum"],
    "nvlink": [RT, E, "nvlrx__bytes.sum", "nvltx__bytes.sum"],
    "ctas": [RT, E, "gr__ctas_launched_realtime.sum"],
    "ctas_gr": [RT, E, "gr__ctas_launched.sum"],
    "dispatch": [RT, E, "gr__dispatch_count.sum"],
    "occ": [RT, E, "sm__warps_active.avg"],
    "occ_rt": [RT, E, "sm__warps_active_realtime.avg"],
    "occ_tpc": [RT, E, "TPC.TriageCompute.tpc__warps_active_realtime.avg"],
    "tpc_all": [TT, E, TACT, TGR, P + "inst_executed_realtime.sum", P + "inst_executed_pipe_fma_realtime.sum",
                P + "inst_executed_pipe_alu_realtime.sum", P + "pipe_fp64_cycles_active_realtime.avg"],
    "verdict": [TT, E, TACT, TGR, DR, DW, DE, P + "inst_executed_realtime.sum",
                P + "inst_executed_pipe_fma_realtime.sum", "gr__ctas_launched_realtime.sum"],
}  # fmt: skip
AGREE: dict[str, list[str]] = {
    "tensor": [T, RT, TT, E],
    "active": [ACT, TACT, "TPC.TriageCompute.sm__cycles_active.sum", E],
    "gr": [GR, TGR, GE, "gr__cycles_elapsed.avg", E],
    "inst": ["sm__inst_executed.sum", "sm__inst_executed_realtime.sum", P + "inst_executed_realtime.sum", E],
    "issue": ["sm__issue_active.avg", "sm__inst_issued.sum", "sm__inst_executed_realtime.sum", E],
    "fma": ["sm__inst_executed_pipe_fmaheavy_realtime.sum", "sm__inst_executed_pipe_fmalite_realtime.sum",
            P + "inst_executed_pipe_fma_realtime.sum", E],
    "fma_plain": ["sm__inst_executed_pipe_fma.sum", "sm__pipe_fma_cycles_active.avg", E],
    "alu": ["sm__inst_executed_pipe_alu_realtime.sum", P + "inst_executed_pipe_alu_realtime.sum", "sm__inst_executed_pipe_alu.sum", E],
    "warps": ["sm__warps_active.avg", "sm__warps_active_realtime.avg", "TPC.TriageCompute.tpc__warps_active_realtime.sum", E],
    "dram": [DR, DW, "dram__bytes.sum", DE, E],
    "fp64": ["sm__pipe_fp64_cycles_active_realtime.avg", P + "pipe_fp64_cycles_active_realtime.avg", "sm__pipe_fp64_cycles_active.avg", E],
    "hmma": [T, RT, "sm__pipe_tensor_op_hmma_cycles_active_realtime.avg", "sm__pipe_tensor_op_imma_cycles_active_realtime.avg", E],
}  # fmt: skip
LOADS = [("bf16", 8192), ("fp8", 8192), ("int8", 8192), ("fp64", 4096), ("tf32", 8192), ("fp32", 4096), ("copy", 2048), ("bf16", 512), ("idle", 0)]


class Load:
    def __init__(self) -> None:
        self.process = subprocess.Popen([sys.executable, str(HERE / "loads.py")], stdin=-1, stdout=-1, text=True)
        self.read()

    def begin(self, name: str, size: int, seconds: float) -> None:
        assert self.process.stdin
        self.process.stdin.write(f"{name} {size} {seconds}\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, object]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]


def cpu() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def sample(pm: BoundPm, counters: list[str], seconds: float, sample_us: int = 1000, decode_us: int = 50000,
           buffer_mb: int = 64) -> dict[str, object]:  # fmt: skip
    out: dict[str, object] = {"counters": counters}
    print(counters, file=sys.stderr, flush=True)
    try:
        out["passes"] = pm.passes(counters)
        if out["passes"] != 1:
            return out
        pm.configure(Config(tuple(counters), sample_us * 1000, True, True, buffer_mb << 20, 4 * decode_us // sample_us + 64))
        out["image_bytes_a_sample"] = pm._image.size // (4 * decode_us // sample_us + 64)
        out["config_bytes"] = pm._config_image.size
        pm.start()
        time.sleep(0.1)
        pm.decode()
        total, spent, got, decodes = np.zeros(len(counters)), 0.0, 0, 0
        began, used = time.monotonic(), cpu()
        due = began
        covered = 0
        while time.monotonic() - began < seconds:
            due += decode_us / 1e6
            time.sleep(max(0.0, due - time.monotonic()))
            mark = time.perf_counter()
            found = pm.decode()
            spent += time.perf_counter() - mark
            n = found.samples
            total += pm.values[:n].sum(axis=0)
            covered += int((pm.end_ns[:n] - pm.start_ns[:n]).sum())
            got += n
            decodes += 1
        out |= {"cpu_pct": 100 * (cpu() - used) / (time.monotonic() - began), "decode_ms": 1e3 * spent / decodes,
                "samples": got, "covered_s": covered / 1e9, "sums": total.tolist()}  # fmt: skip
        names = [c + ".peak_sustained" for c in counters]
        if got:
            out["peaks"] = [one(pm, name) for name in names]
        pm.stop()
    except CuptiError as error:
        out["error"] = str(error)
        pm.stop()
    return out


def one(pm: BoundPm, name: str) -> float | str:
    try:
        return pm.constants([name])[0]
    except CuptiError as error:
        return str(error)


def held(pm: BoundPm, counters: list[str]) -> dict[str, object]:
    """How many 20 us samples a 32 MiB hardware buffer keeps."""
    pm.configure(Config(tuple(counters), 20000, True, True, 32 << 20, 20000))
    pm.start()
    time.sleep(1.5)
    found = pm.decode()
    n = found.samples
    gaps = pm.start_ns[1:n].astype(np.int64) - pm.end_ns[: n - 1].astype(np.int64)
    mark = time.perf_counter()
    pm.decode()
    return {"held_of_75000": n, "full": found.image_full, "overflow": found.overflow,
            "largest_gap_ns": int(gaps.max()) if n > 1 else None, "first_start": int(pm.start_ns[0]),
            "empty_decode_ms": 1e3 * (time.perf_counter() - mark)}  # fmt: skip


def reset(pm: BoundPm, image: int) -> dict[str, object]:
    """A reset by CUPTI against a copy of a fresh image, and whether the copy serves."""
    import cupti.cupti as c

    pm.configure(Config((RT, E), 1000000, True, True, 32 << 20, image))
    pm.start()
    time.sleep(0.3)
    first = pm.decode().samples
    marks = []
    for _ in range(20):
        mark = time.perf_counter()
        c.pm_sampling_counter_data_image_initialize(pm._reset.ptr)
        marks.append(time.perf_counter() - mark)
    pristine = pm._image.copy()
    mark = time.perf_counter()
    for _ in range(20):
        pm._image[:] = pristine
    copied = time.perf_counter() - mark
    time.sleep(0.05)
    pm._image[:] = pristine
    c.pm_sampling_decode_data(pm._decode.ptr)
    c.pm_sampling_get_counter_data_info(pm._info.ptr)
    n = int(pm._info.num_completed_samples)
    for address in pm._evaluations[:n]:
        c.profiler_host_evaluate_to_gpu_values(address)
    return {"first": first, "initialize_ms": 1e3 * float(np.median(marks)), "memcpy_ms": 1e3 * copied / 20,
            "bytes": pm._image.size, "samples": n, "elapsed": pm.values[:3, 1].tolist()}  # fmt: skip


def backlog(pm: BoundPm) -> list[object]:
    pm.configure(Config((RT, E), 1000000, True, True, 32 << 20, 40))
    pm.start()
    time.sleep(0.3)
    rounds: list[object] = []
    for _ in range(14):
        found = pm.decode()
        n = found.samples
        rounds.append([n, found.image_full, int(pm.start_ns[0]) if n else -1,
                       int(pm.end_ns[n - 1]) if n else -1, float(pm.values[0, 1]) if n else -1])  # fmt: skip
        time.sleep(0.01)
    return rounds


def oldest(pm: BoundPm) -> list[object]:
    pm.configure(Config((RT, E), 20000, True, False, 1 << 20, 20000))
    pm.start()
    time.sleep(1.0)
    out: list[object] = [list(pm.decode()) for _ in range(4)]
    pm.stop()
    pm.start()
    time.sleep(0.01)
    out += [list(pm.decode()), int(pm.start_ns[0])]
    return out


def sysclk(pm: BoundPm) -> dict[str, object]:
    pm.configure(Config((RT, E), 1000000, False, True, 32 << 20, 4096))
    pm.start()
    time.sleep(0.5)
    n = pm.decode().samples
    return {"samples": n, "period_ns": np.diff(pm.end_ns[:n].astype(np.int64))[:5].tolist()}


def bad_names(pm: BoundPm) -> dict[str, object]:
    out: dict[str, object] = {}
    for bad in (["nope"], ["sm__cycles_active"], ["sm__cycles_active.avg.foo"], ["sm__cycles_active.foo"],
                ["sm__inst_executed_pipe_fma.sum", T, E, ACT, GR], ["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
                ["sm__cycles_active.avg.pct_of_peak_sustained_elapsed"], ["sm__cycles_active.avg.per_second"]):  # fmt: skip
        try:
            out[bad[0]] = pm.passes(bad)
        except CuptiError as error:
            out[bad[0]] = str(error)
    return out


def reconfigure(pm: BoundPm, keep: bool) -> str:
    """Does a second configure on one object survive? (It ended in a segmentation fault once.)"""
    pm.configure(Config((T, E), 1000000, True, True, 32 << 20, 400))
    pm.start()
    time.sleep(0.2)
    kept = (pm.decode(), pm._config_image, pm._image) if keep else None
    pm.stop()
    pm.configure(Config((RT, E), 1000000, True, True, 32 << 20, 400))
    pm.start()
    time.sleep(0.2)
    return f"{pm.decode()} {bool(kept)}"


def empty_constants(pm: BoundPm) -> list[float]:
    """Can a peak be read before any sample came?"""
    pm.configure(Config((T, E), 1000000, True, True, 32 << 20, 400))
    import cupti.cupti as c

    c.pm_sampling_counter_data_image_initialize(pm._reset.ptr)
    return pm.constants([T + ".peak_sustained"])


def memory(pm: BoundPm, megabytes: int) -> list[float]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    pm.configure(Config((RT, E), 1000000, True, True, megabytes << 20, 400))
    pm.start()
    time.sleep(0.3)
    pm.decode()
    return [before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]


def forked(measure: Callable[..., object], *args: object) -> object:
    """Measure in a child of its own, so that a fault there is a result here."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        try:
            pm = BoundPm(0)
            chip = pm.enable()
            found = measure(0, chip) if measure is availability else measure(pm, *args)
            pm.stop()
            pm.disable()
        except BaseException as error:
            found = repr(error)
        os.write(write, json.dumps(found).encode())
        os._exit(0)
    os.close(write)
    text = b"".join(iter(lambda: os.read(read, 65536), b""))
    os.close(read)
    status = os.waitpid(child, 0)[1]
    return json.loads(text) if text else f"died of signal {status & 127}"


def availability(device: int, chip: str) -> dict[str, object]:
    """Does the availability image tell a unit that is not there?"""
    import cupti.cupti as c

    out: dict[str, object] = {}
    try:
        p = c.PmSamplingGetCounterAvailabilityParams()
        p.struct_size = c.PM_SAMPLING_GET_COUNTER_AVAILABILITY_PARAMS_STRUCT_SIZE
        p.device_index = device
        c.pm_sampling_get_counter_availability(p.ptr)
        image = np.zeros(p.counter_availability_image_size, np.uint8)
        p.p_counter_availability_image = image.ctypes.data
        c.pm_sampling_get_counter_availability(p.ptr)
        out["bytes"] = image.size
        from cufall_py.sources.cupti.bindings import _Host

        for names in ([T, E], ["nvlrx__bytes.sum"], ["ctc__rx_bytes_data_user.sum"], ["pcie__read_bytes.sum"]):
            host = _Host()
            h = c.ProfilerHostInitializeParams()
            h.struct_size = c.PROFILER_HOST_INITIALIZE_PARAMS_STRUCT_SIZE
            h.profiler_type = int(c.ProfilerType.PM_SAMPLING)
            h.p_chip_name = chip
            h.p_counter_availability_image = image.ctypes.data
            c.profiler_host_initialize(h.ptr)
            host.object = h.p_host_object
            try:
                out[names[0]] = host.passes(host.config_image(names))
            except CuptiError as error:
                out[names[0]] = str(error)
            host.close()
    except Exception as error:
        out["error"] = repr(error)
    return out


def main(path: str) -> None:
    result: dict[str, object] = {"date": time.strftime("%F %T"), "libraries": str(loader.load())}
    result |= {"mapped": loader.mapped()}

    def save(key: str, value: object) -> None:
        result[key] = value
        Path(path).write_text(json.dumps(result))

    load = Load()
    budget, began = float(os.environ.get("BUDGET_S", "240")), time.monotonic()
    load.begin("bf16", 8192, 1000)
    time.sleep(1.5)
    save("cost", {name: forked(sample, counters, 0.5) for name, counters in SETS.items()})
    save("cost_again", {name: forked(sample, SETS[name], 0.5) for name in ("tensor", "tensor_rt", "rt4")})
    load.process.kill()
    save("availability", forked(availability))
    save("backlog", forked(backlog))
    save("oldest", forked(oldest))
    save("sysclk", forked(sysclk))
    save("names", forked(bad_names))
    save("reconfigure", [forked(reconfigure, True), forked(reconfigure, False)])
    save("empty_constants", forked(empty_constants))
    save("memory", [forked(memory, mb) for mb in (8, 64, 256)])
    save("held", [forked(held, [RT, E]), forked(held, [T, E, ACT, GR])])
    save("reset", [forked(reset, n) for n in (40, 64, 264, 1024)])
    load, agree = Load(), {}
    for name, size in LOADS:
        if time.monotonic() - began > budget:
            break
        load.begin(name, size, 1.1 * len(AGREE) + 2)
        time.sleep(1.0)
        agree[f"{name} {size}"] = {key: forked(sample, counters, 0.3) for key, counters in AGREE.items()}
        save("agree", agree)
        load.read()
    load.process.kill()


if __name__ == "__main__":
    main(sys.argv[1])
