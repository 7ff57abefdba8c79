"""Everything that only a real GPU proves, in one run: build it, check it, measure it.

    python benchmarks/gpu_suite.py OUT --stages parity transparency scenarios exits answers \
        modules recordings hook steps

The package must be installed (`make install`); every stage runs that. ``exits`` wants two GPUs for
FSDP2, and says so where there is one.

Writes every log, trace summary and counter file under OUT and prints a short table last.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SUPPORT = HERE.parent / "tests" / "support"
TRAIN = str(HERE / "train.py")
PARITY = {  # workload -> steps
    "gpt2": 12, "gpt2-eager": 8, "gpt2-eager-sgd": 8, "gpt2-variable": 16, "gpt2-accumulate": 8,
    "gpt2-bf16": 8, "bert-variable": 12, "qwen": 6, "resnet50": 10,
}  # fmt: skip
RECORDINGS = {"gpt2": 200, "gpt2-variable": 200, "resnet50": 200, "qwen": 200}
EXPANDABLE = ("gpt2-eager", "gpt2-variable")


def call(name: str, command: list[str], out: Path, **variables: str) -> tuple[int, str]:
    """Run a child; keep its output in OUT/logs; return its status and its standard output."""
    began = time.perf_counter()
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=out,  # where the processes that torchrun starts leave their traces
        env={**os.environ, **variables},
    )
    (out / "logs").mkdir(exist_ok=True)
    log = f"$ {' '.join(command)}\n{done.stdout}\n--- stderr\n{done.stderr}"
    (out / "logs" / f"{name}.txt").write_text(log)
    print(f"[{time.perf_counter() - began:6.1f} s] {name}: exit {done.returncode}", flush=True)
    if done.returncode:
        print(done.stdout[-600:], done.stderr[-1200:], flush=True)
    return done.returncode, done.stdout


def traced(output: Path, *script: str) -> list[str]:
    return [sys.executable, "-m", "gpumemtrace", "run", "-q", "-f", "-o", str(output), *script]


def parity(out: Path, names: list[str]) -> list[str]:
    """Traces against torch's counters; OUT/counters keeps them for simulated-against-real."""
    (out / "counters").mkdir(exist_ok=True)
    rows = []
    cases = [(name, "") for name in names] + [(name, "expandable") for name in EXPANDABLE]
    for workload, conf in cases:
        name = f"{workload}-{conf}" if conf else workload
        trace, counters = out / f"{name}.gmt", out / "counters" / f"{name}.json"
        variables = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"} if conf else {}
        script = (TRAIN, workload, "--steps", str(PARITY[workload]), "--counters", str(counters))
        call(f"train-{name}", traced(trace, *script), out, **variables)
        check = [sys.executable, str(HERE / "parity.py"), str(trace), str(counters)]
        status, text = call(f"parity-{name}", check, out)
        rows.append(f"{'PASS' if status == 0 else 'FAIL'} {text.strip()}")
    return rows


def transparency(out: Path) -> list[str]:
    """The same run without the tracer: losses to the bit, counters to the byte."""
    rows = []
    for workload in ("gpt2", "resnet50"):
        plain = out / f"untraced-{workload}.json"
        script = [TRAIN, workload, "--steps", str(PARITY[workload]), "--counters", str(plain)]
        call(f"untraced-{workload}", [sys.executable, *script], out)
        a = json.loads(plain.read_text())
        b = json.loads((out / "counters" / f"{workload}.json").read_text())
        losses, counters = a["loss_bits"] == b["loss_bits"], a["counters"] == b["counters"]
        ok = "PASS" if counters and (losses or workload != "gpt2") else "FAIL"
        rows.append(f"{ok} {workload}: losses equal to the bit {losses}, counters equal {counters}")
    return rows


def scenarios(out: Path) -> list[str]:
    """S1-S3 and others of gpu_scenarios.py, traced and not."""
    rows = []
    script = str(HERE / "gpu_scenarios.py")
    for name in ("record_stream", "graphs", "contention", "cudnn_benchmark", "spike"):
        trace = out / f"{name}.gmt"
        for how, command in (
            ("untraced", [sys.executable, script, name]),
            ("traced", traced(trace, script, name)),
        ):
            status, text = call(f"{name}-{how}", command, out)
            rows.append(f"{'PASS' if status == 0 else 'FAIL'} {how} {text.strip()}")
        show = [sys.executable, "-m", "gpumemtrace", "summary", "--json", str(trace)]
        _, text = call(f"{name}-summary", show, out)
        if text:
            summary = json.loads(text)
            rows.append(f"     trace: {json.dumps(summary['trace'])[:400]}")
            rows.append(f"     {json.dumps(summary['devices'][0]['peak_bytes'])}")
    return rows


def exits(out: Path) -> list[str]:
    """The ten programs of tests/support/exit_paths.py, and FSDP2, traced as untraced."""
    sys.path.insert(0, str(SUPPORT))
    from exit_paths import ENDINGS, STATUS, program_of, without_times

    rows = []
    for ending in ENDINGS:
        seen = []
        for how, trace in (
            ("untraced", {}),
            ("traced", {"HOOK_TRACE": str(out / f"{ending}.gmt")}),
        ):
            done = subprocess.run(
                [sys.executable, "-c", program_of(ending)],
                capture_output=True,
                text=True,
                check=False,
                timeout=300,
                cwd=out,  # `-c` would import the package from a checkout
                env={**os.environ, "PYTHONPATH": str(SUPPORT), **trace},
            )
            (out / "logs").mkdir(exist_ok=True)
            (out / "logs" / f"exit-{ending}-{how}.txt").write_text(done.stdout + done.stderr)
            seen.append((done.returncode, done.stdout, without_times(done.stderr)))
        is_whole = call(
            f"exit-{ending}-check",
            [sys.executable, "-m", "gpumemtrace", "check", str(out / f"{ending}.gmt")],
            out,
        )
        # Where torch's Adam was used, some Pythons end with 1 on Ctrl-C, traced or not.
        ended = seen[0][0] == STATUS.get(ending, 0) or "KeyboardInterrupt" in seen[0][2]
        ok = seen[0] == seen[1] and ended and is_whole[0] == 0
        rows.append(
            f"{'PASS' if ok else 'FAIL'} {ending}: exit status {seen[0][0]} untraced, {seen[1][0]} "
            f"traced, outputs equal {seen[0][1:] == seen[1][1:]}, check {is_whole[0]}"
        )
    return rows + fsdp2(out)


def fsdp2(out: Path) -> list[str]:
    """Losses to the bit and peaks to the byte of each rank, traced against untraced."""
    import torch

    gpus = torch.cuda.device_count()
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus)]
    for how, variables in (("untraced", {}), ("traced", {"GPUMEMTRACE": "1"})):
        script = [str(HERE / "fsdp2.py"), "--losses", str(out / f"fsdp2-{how}")]
        status, _ = call(f"fsdp2-{how}", [*launch, *script], out, **variables)
        if status:
            return [f"FAIL fsdp2 {how}: exit status {status}"]
    rows = []
    for rank in range(gpus):
        plain, traced_run = (
            json.loads((out / f"fsdp2-{how}.{rank}.json").read_text())
            for how in ("untraced", "traced")
        )
        ok = "PASS" if plain == traced_run else "FAIL"
        rows.append(
            f"{ok} fsdp2 rank {rank} of {gpus}: losses and peaks equal {plain == traced_run}"
        )
    return rows if gpus > 1 else [*rows, "     fsdp2: one GPU here, nothing was sharded"]


def answers(out: Path) -> list[str]:
    """Peaks of phases measured by resets, and categories against true pointers."""
    from gpu_answers import PROGRAMS, compare_categories, compare_phases

    rows = []
    for grad in ("no_grad", "grad"):
        trace = out / f"phases-{grad}.gmt"
        script = [str(PROGRAMS / "measured_peaks.py"), str(trace), grad]
        status, text = call(f"phases-{grad}", [sys.executable, *script], out)
        measured = json.loads(text.splitlines()[-1]) if status == 0 else []
        rows += compare_phases(trace, measured) if measured else [f"FAIL {grad}: {status}"]
    folder = out / "categories"
    folder.mkdir(exist_ok=True)
    script = [str(PROGRAMS / "categories.py"), str(folder)]
    status, _ = call("categories", [sys.executable, *script], out)
    return [*rows, *(compare_categories(folder) if status == 0 else [f"FAIL {status}"])]


def modules(out: Path) -> list[str]:
    """Which module owns the peak; and nothing changes when that is recorded."""
    from gpu_answers import compare_modules

    rows = []
    for workload in ("gpt2", "qwen"):
        trace, script = out / f"{workload}-modules.gmt", [TRAIN, workload, "--steps", "4"]
        plain, with_modules = (out / f"{workload}-{how}.json" for how in ("plain", "modules"))
        call(f"plain-{workload}", [sys.executable, *script, "--counters", str(plain)], out)
        options = ["--modules", *script, "--counters", str(with_modules)]
        status, _ = call(f"modules-{workload}", traced(trace, *options), out)
        same = status == 0 and json.loads(plain.read_text()) == json.loads(with_modules.read_text())
        rows.append(f"{'PASS' if same else 'FAIL'} {workload}: losses and counters equal {same}")
        rows += compare_modules(trace, workload)
    return rows


def recordings(out: Path) -> list[str]:
    """Runs of 200 steps with exact times, for `codec.py`."""
    rows = []
    for workload, steps in RECORDINGS.items():
        trace = out / f"{workload}-{steps}.gmt"
        script = ["--time-resolution", "1", TRAIN, workload, "--steps", str(steps)]
        status, _ = call(f"record-{workload}", traced(trace, *script), out)
        size = trace.stat().st_size if trace.exists() else 0
        rows.append(f"{'PASS' if status == 0 else 'FAIL'} {trace.name}: {size:,} B")
    return rows


def hook(out: Path) -> list[str]:
    """Nanoseconds per alloc+free pair."""
    _, text = call("hook_overhead", [sys.executable, str(HERE / "hook_overhead.py")], out)
    return text.splitlines()


def steps(out: Path, names: list[str], rounds: int) -> list[str]:
    """Step time on, off and beside PyTorch's recorder."""
    command = [sys.executable, str(HERE / "step_time.py"), *names, "--rounds", str(rounds)]
    _, text = call("step_time", [*command, "--json", str(out / "step_time.json")], out)
    return text.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--stages", nargs="+", default=["parity", "transparency", "scenarios"])
    parser.add_argument("--parity", nargs="+", default=list(PARITY), help="workloads to check")
    parser.add_argument("--steps", nargs="+", default=["gpt2", "resnet50", "qwen"])
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True, parents=True)
    args.out = args.out.resolve()
    stages = {
        "parity": lambda: parity(args.out, args.parity),
        "transparency": lambda: transparency(args.out),
        "scenarios": lambda: scenarios(args.out),
        "exits": lambda: exits(args.out),
        "answers": lambda: answers(args.out),
        "modules": lambda: modules(args.out),
        "recordings": lambda: recordings(args.out),
        "hook": lambda: hook(args.out),
        "steps": lambda: steps(args.out, args.steps, args.rounds),
    }
    report: list[str] = []
    for name in args.stages:
        try:
            report += [f"## {name}", *stages[name]()]
        except Exception as error:  # one broken stage must not cost the others
            report.append(f"FAIL {name}: {type(error).__name__}: {error}")
    (args.out / "report.txt").write_text("\n".join(report) + "\n")
    print("\n".join(report))


if __name__ == "__main__":
    main()
