"""Everything that only a real GPU proves, in one run: build it, check it, measure it.

    python benchmarks/gpu_suite.py OUT --stages parity transparency scenarios hook steps

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

HERE = Path(__file__).parent
TRAIN = str(HERE / "train.py")
PARITY = {  # workload -> steps
    "gpt2": 12, "gpt2-eager": 8, "gpt2-eager-sgd": 8, "gpt2-variable": 16, "gpt2-accumulate": 8,
    "gpt2-bf16": 8, "bert-variable": 12, "qwen": 6, "resnet50": 10,
}  # fmt: skip
EXPANDABLE = ("gpt2-eager", "gpt2-variable")


def call(name: str, command: list[str], out: Path, **variables: str) -> tuple[int, str]:
    """Run a child; keep its output in OUT/logs; return its status and its standard output."""
    began = time.perf_counter()
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **variables}
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
    stages = {
        "parity": lambda: parity(args.out, args.parity),
        "transparency": lambda: transparency(args.out),
        "scenarios": lambda: scenarios(args.out),
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
