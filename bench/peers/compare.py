# SPDX-License-Identifier: Apache-2.0
"""Times training steps of terapipe and of other programs, in turn round by round, from the same weights on
the same batch with the same threads, and checks that their losses agree. Run by peers.sh."""
import argparse
import json
import os
import pty
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
from dataclasses import dataclass

import numpy

LOSS_BOUND = 1e-4  # relative, over all steps of a round: both round, and weights drift apart
WARM_UP = 2  # steps: programs compile, and touch memory for the first time, the optimizer's in the second one
HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass
class Setting:
    """A model, its batch, and AdamW's numbers."""
    name: str
    L: int
    H: int
    C: int
    V: int
    T: int
    B: int
    steps: int  # of a round; WARM_UP more come first and are not timed
    lr: float = 6e-4
    beta2: float = 0.95
    decay: float = 0.1
    clip: float = 1.0


SETTINGS = [
    Setting("gpt2", L=12, H=12, C=768, V=50257, T=1024, B=1, steps=2),
    Setting("tinyshakespeare", L=4, H=4, C=128, V=256, T=64, B=12, steps=30),
    Setting("width512", L=6, H=8, C=512, V=256, T=2048, B=1, steps=3),
]


class Contender:
    """A program: what it needs of a setting, how it is started, what a line of its output says."""
    rounding = 0.0  # of the losses that it prints
    folder = None  # where it runs
    environment = {}

    def prepare(self, setting, folder):
        pass

    def step_of(self, line):
        """(loss, seconds) of a line about a step, else None."""
        if not line.startswith("{"):
            return None
        values = json.loads(line)
        return values["loss"], values["step_seconds"]


class Terapipe(Contender):
    name = "terapipe"

    def __init__(self, program):
        self.program = program

    def command(self, s, folder, threads, steps):
        return [self.program, "train", "--load", f"{folder}/model", "--data-path", f"{folder}/tokens.bin",
                "--sampler", "sequential", "--schedule", "gpipe", "--group-size", str(s.B), "--train-iters", str(steps),
                "--seq-length", str(s.T), "--global-batch-size", str(s.B), "--threads", str(threads),
                "--lr", str(s.lr), "--lr-decay-style", "constant", "--adam-beta2", str(s.beta2),
                "--weight-decay", str(s.decay), "--clip-grad", str(s.clip), "--metrics", "/dev/stdout"]


class PyTorch(Contender):
    def __init__(self, python, compiled):
        self.python, self.compiled = python, compiled
        self.name = "PyTorch, compiled" if compiled else "PyTorch"

    def command(self, s, folder, threads, steps):
        return [self.python, f"{HERE}/gpt2.py", "--model", f"{folder}/model", "--tokens", f"{folder}/tokens.bin",
                "--batch", str(s.B), "--seq-length", str(s.T), "--steps", str(steps), "--threads", str(threads),
                "--lr", str(s.lr), "--beta2", str(s.beta2), "--decay", str(s.decay),
                "--clip", str(s.clip)] + ["--compile"] * self.compiled


class NanoGPT(Contender):
    """nanoGPT (https://github.com/karpathy/nanoGPT), which draws its sequences at random places: its file has
    but one place."""
    name = "nanoGPT"
    rounding = 5e-5

    def __init__(self, python, checkout):
        self.python, self.folder = python, checkout
        for file in ("train.py", "model.py", "configurator.py"):
            if not os.path.exists(f"{checkout}/{file}"):
                sys.exit(f"--nanogpt {checkout}: there is no {file}, expected a checkout of nanoGPT")

    def prepare(self, s, folder):
        os.makedirs(f"{folder}/nanogpt")
        sequence = numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.uint16)[:s.T + 1]
        for split in ("train", "val"):
            sequence.tofile(f"{folder}/nanogpt/{split}.bin")
        subprocess.run([self.python, f"{HERE}/nanogpt_checkpoint.py", f"{folder}/model",
                        f"{folder}/nanogpt/ckpt.pt", "--beta2", str(s.beta2), "--decay", str(s.decay)], check=True)

    def command(self, s, folder, threads, steps):
        self.environment = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        return [self.python, "train.py", "--init_from=resume", f"--out_dir={folder}/nanogpt",
                f"--dataset={folder}/nanogpt", "--device=cpu", "--dtype=float32", "--compile=False",
                "--eval_interval=1000000", "--eval_iters=1", "--log_interval=1", f"--max_iters={steps - 1}",
                f"--batch_size={s.B}", f"--block_size={s.T}", "--gradient_accumulation_steps=1", "--dropout=0.0",
                "--decay_lr=False", f"--learning_rate={s.lr}", f"--grad_clip={s.clip}"]

    def step_of(self, line):
        found = re.match(r"iter \d+: loss ([\d.]+), time ([\d.]+)ms", line)
        return found and (float(found[1]), float(found[2]) * 1e-3)


class LlmC(Contender):
    """llm.c's CPU trainer (https://github.com/karpathy/llm.c), train_gpt2 as its user built it: batch and
    sequence length are constants of its source, and so are AdamW's numbers."""
    name = "llm.c"
    rounding = 5e-7
    TOKENS = "dev/data/tinyshakespeare/tiny_shakespeare_{}.bin"

    def __init__(self, checkout):
        self.program = f"{os.path.abspath(checkout)}/train_gpt2"
        if not os.access(self.program, os.X_OK):
            sys.exit(f"--llmc {checkout}: there is no train_gpt2, expected a checkout of llm.c after `make train_gpt2`")
        source = open(f"{checkout}/train_gpt2.c").read()
        sizes = [re.search(rf"\bint {name} = (\d+);", source) for name in "BT"]
        if not all(sizes) or self.TOKENS.format("train") not in source:
            sys.exit(f"--llmc {checkout}: train_gpt2.c has no \"int B\", \"int T\" or {self.TOKENS.format('train')}, "
                     "expected llm.c of June 2024 or later")
        self.B, self.T = (int(size[1]) for size in sizes)

    def setting(self):
        """GPT-2 at the sizes that it was built for."""
        return Setting(f"gpt2, B={self.B}, T={self.T}", L=12, H=12, C=768, V=50257, T=self.T, B=self.B, steps=2,
                       lr=1e-4, beta2=0.999, decay=0.0, clip=0.0)

    def prepare(self, s, folder):
        self.folder = f"{folder}/llmc"
        tokens = numpy.fromfile(f"{folder}/tokens.bin", dtype=numpy.uint16)
        for split in ("train", "val"):
            path = f"{self.folder}/{self.TOKENS.format(split)}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as file:  # one batch: what it shuffles is the same each time
                header = numpy.zeros(256, dtype=numpy.int32)
                header[:3] = 20240520, 1, len(tokens)
                file.write(header.tobytes() + tokens.tobytes())
        self.write_model(f"{folder}/model", f"{self.folder}/gpt2_124M.bin")

    def write_model(self, model, path):
        """Tensor by tensor over all layers; dense weights are [out, in]; the vocabulary is padded."""
        with open(f"{model}/model.safetensors", "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
            data = file.read()
        get = lambda name: numpy.frombuffer(data[slice(*header[name]["data_offsets"])],
                                            dtype=numpy.float32).reshape(header[name]["shape"])
        wte, wpe = get("wte.weight"), get("wpe.weight")
        V, C, padded = wte.shape[0], wte.shape[1], (wte.shape[0] + 127) // 128 * 128
        config = json.load(open(f"{model}/config.json"))
        words = numpy.zeros(256, dtype=numpy.int32)
        words[:8] = (20240326, 3, wpe.shape[0], V, config["n_layer"], config["n_head"], C, padded)
        with open(path, "wb") as file:
            file.write(words.tobytes())
            file.write(wte.tobytes() + bytes(4 * (padded - V) * C) + wpe.tobytes())
            for name in ("ln_1", "attn.c_attn", "attn.c_proj", "ln_2", "mlp.c_fc", "mlp.c_proj"):
                for part in ("weight", "bias"):
                    for layer in range(config["n_layer"]):
                        file.write(numpy.ascontiguousarray(get(f"h.{layer}.{name}.{part}").T).tobytes())
            file.write(get("ln_f.weight").tobytes() + get("ln_f.bias").tobytes())

    def command(self, s, folder, threads, steps):
        self.environment = {"OMP_NUM_THREADS": str(threads)}
        return [self.program]

    def step_of(self, line):
        found = re.match(r"step \d+: train loss ([\d.]+) \(took ([\d.]+) ms", line)
        return found and (float(found[1]), float(found[2]) * 1e-3)


def run(contender, setting, folder, threads, steps):
    """Losses and seconds of the steps, and the peak of resident memory in bytes. The program prints to a
    terminal, so that lines come as they are made, and is ended after its last step: some go on."""
    terminal, its_end = pty.openpty()
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(contender.command(setting, folder, threads, steps), stdin=subprocess.DEVNULL,
                                   stdout=its_end, stderr=errors, cwd=contender.folder,
                                   env={**os.environ, **contender.environment})
        os.close(its_end)
        done, rest = [], ""
        while len(done) < steps:
            try:
                text = os.read(terminal, 4096).decode(errors="replace")
            except OSError:  # the program has ended
                break
            *lines, rest = (rest + text).split("\n")
            done += [step for step in (contender.step_of(line.strip()) for line in lines) if step]
        if len(done) == steps:
            process.kill()
        _, process.returncode, usage = os.wait4(process.pid, 0)
        os.close(terminal)
        if len(done) < steps:
            errors.seek(0)
            sys.exit(f"{contender.name}: ended after {len(done)} of {steps} steps:\n"
                     + errors.read().decode(errors="replace")[-2000:])
    losses, seconds = zip(*done)
    return losses, seconds, usage.ru_maxrss * 1024


def prepare(program, s, folder):
    """One batch, B times the same T tokens, each sequence ending where the next begins; and initial weights
    as terapipe makes them, saved after a step that changed nothing."""
    sequence = numpy.random.default_rng(1).integers(s.V, size=s.T, dtype=numpy.uint16)
    numpy.concatenate([numpy.tile(sequence, s.B), sequence[:1]]).tofile(f"{folder}/tokens.bin")
    made = subprocess.run([program, "train", "--num-layers", str(s.L), "--hidden-size", str(s.C),
                           "--num-attention-heads", str(s.H), "--vocab-size", str(s.V), "--seq-length", str(s.T),
                           "--data-path", f"{folder}/tokens.bin", "--schedule", "gpipe", "--group-size", "1",
                           "--train-iters", "1", "--lr", "0", "--save", f"{folder}/run"],
                          capture_output=True, text=True)
    if made.returncode != 0:
        sys.exit(f"{program}: could not make a model:\n{made.stderr}")
    os.makedirs(f"{folder}/model")
    for file in ("config.json", "model.safetensors"):
        shutil.move(f"{folder}/run/checkpoints/step-00000001/{file}", f"{folder}/model/{file}")
    shutil.rmtree(f"{folder}/run")


def measure(contenders, s, folder, threads, rounds):
    """A row for each contender, the first one being what the others are compared with."""
    for contender in contenders:
        contender.prepare(s, folder)
    medians, seconds, peaks, losses = ([[] for _ in contenders] for _ in range(4))
    for _ in range(rounds):
        for i, contender in enumerate(contenders):
            losses[i], times, peak = run(contender, s, folder, threads, WARM_UP + s.steps)
            seconds[i] += times[WARM_UP:]
            medians[i].append(statistics.median(times[WARM_UP:]))
            peaks[i].append(peak)
    ours = statistics.median(medians[0])
    for i, contender in enumerate(contenders):
        off = max(max(abs(a - b) - contender.rounding, 0) / a for a, b in zip(losses[0], losses[i]))
        yield {"model": s.name, "program": contender.name, "step_ms": 1e3 * statistics.median(medians[i]),
               "fastest_ms": 1e3 * min(seconds[i]), "slowest_ms": 1e3 * max(seconds[i]),
               "ratio": statistics.median(medians[i]) / ours, "loss": losses[i][-1], "loss_off": off,
               "peak_mib": max(peaks[i]) / 2**20}


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--terapipe", required=True, help="the program")
    parser.add_argument("--python", required=True, help="an interpreter that has torch and numpy")
    parser.add_argument("--llmc", metavar="DIR", help="a checkout of llm.c with its train_gpt2 built")
    parser.add_argument("--nanogpt", metavar="DIR", help="a checkout of nanoGPT")
    parser.add_argument("--compile", action="store_true", help="PyTorch also through torch.compile")
    parser.add_argument("--models", nargs="+", default=[s.name for s in SETTINGS],
                        choices=[s.name for s in SETTINGS], help="which to compare (default: all)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each program")
    parser.add_argument("--rounds", type=int, default=5, help="medians are printed")
    parser.add_argument("--json", metavar="FILE", help="write the table as JSON too")
    return parser.parse_args()


def main():
    """0: all losses agree; 1: not."""
    options = parse()
    ours = Terapipe(os.path.abspath(options.terapipe))
    torch = [PyTorch(options.python, False)] + [PyTorch(options.python, True)] * options.compile
    nanogpt = [NanoGPT(options.python, options.nanogpt)] if options.nanogpt else []
    work = [(s, [ours] + torch + nanogpt) for s in SETTINGS if s.name in options.models]
    if options.llmc:
        llmc = LlmC(options.llmc)
        work.append((llmc.setting(), [ours] + torch + [llmc]))
    rows = []
    print(f"training steps with {options.threads} threads, fp32; ratios are to terapipe's time, above 1: slower\n"
          f"{'model':<16} {'program':<18} {'ms/step':>9}  {'fastest .. slowest':<20} {'ratio':>6} {'loss off':>9} "
          f"{'peak MiB':>9}")
    for s, contenders in work:
        with tempfile.TemporaryDirectory(prefix="terapipe-peers-") as folder:
            prepare(ours.program, s, folder)
            for row in measure(contenders, s, folder, options.threads, options.rounds):
                rows.append(row)
                span = f"{row['fastest_ms']:.2f} .. {row['slowest_ms']:.2f}"
                print(f"{row['model']:<16} {row['program']:<18} {row['step_ms']:9.2f}  {span:<20} {row['ratio']:6.2f} "
                      f"{row['loss_off']:9.1e} {row['peak_mib']:9.0f}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"threads": options.threads, "rounds": options.rounds, "rows": rows}, file, indent=1)
    wrong = [row for row in rows if not row["loss_off"] <= LOSS_BOUND]
    for row in wrong:
        print(f"{row['model']}: the losses of {row['program']} are off by {row['loss_off']:.1e}, expected at most "
              f"{LOSS_BOUND:.0e}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
