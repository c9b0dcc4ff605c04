#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models between this project and independent implementations: the safetensors package, and transformers where it is.

    cross_check.py DARL MODELS     exit 0 = equal, 1 = not, 77 = the packages are not installed

DARLCORE_JUDGES names a virtual environment that has the packages (scripts/judges makes one); without it the running
Python is asked. MODELS holds a folder with a config.json per kind of model.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77
TOLERANCE = 2e-5


def darl(program, *arguments):
    return json.loads(subprocess.run([program, "--json", *arguments], check=True, capture_output=True, text=True).stdout)


def read_back(folder, said):
    """Every tensor is read by the safetensors package, and there are as many elements as darl names."""
    from safetensors.numpy import load_file
    tensors = load_file(folder / "model.safetensors")
    elements = sum(t.size for t in tensors.values())
    print(f"{folder.name}: {len(tensors)} tensors, {elements} elements")
    return elements == said["parameters"]


def compare_logits(program, folder, scratch, transformers, torch):
    """Our model in their program, and what they write in ours; gives the largest difference over the largest logit."""
    vocab = json.loads((folder / "config.json").read_text())["vocab_size"]
    ids = [[(7 * i * i + 3) % min(vocab, 256) for i in range(16)]]
    pathlib.Path(scratch, "ids.json").write_text(json.dumps(ids))

    def ours(path):
        return torch.tensor(darl(program, "logits", "--model", str(path), "--ids", scratch + "/ids.json")["logits"][0])

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        theirs = model(torch.tensor(ids)).logits[0]
    written = pathlib.Path(scratch, folder.name + "-written")
    model.save_pretrained(written)
    difference = (ours(folder) - theirs).abs().max() / theirs.abs().max()
    back = (ours(written) - theirs).abs().max() / theirs.abs().max()
    print(f"{folder.name}: logits differ by {difference:.2e} as exported, by {back:.2e} as written by them and read by us")
    return max(difference.item(), back.item())


def main():
    judges = os.environ.get("DARLCORE_JUDGES")
    if judges and pathlib.Path(sys.prefix).resolve() != pathlib.Path(judges).resolve():
        return subprocess.run([os.path.join(judges, "bin", "python"), *sys.argv], check=False).returncode
    try:
        import safetensors.numpy  # noqa: F401
    except ImportError:
        print("skipped: the Python packages safetensors and numpy are not installed (scripts/judges FOLDER, then "
              "DARLCORE_JUDGES=FOLDER)")
        return SKIPPED
    program, models = sys.argv[1], pathlib.Path(sys.argv[2])
    sources = {"debug-1m": ["--flavour", "debug-1m"]}
    sources.update({path.parent.name: ["--config-json", str(path)] for path in sorted(models.glob("*/config.json"))})
    try:
        import torch
        import transformers
        transformers.utils.logging.disable_progress_bar()
    except ImportError:
        torch = transformers = None
        print("logits not compared: the Python packages torch and transformers are not installed")
    good = True
    with tempfile.TemporaryDirectory() as scratch:
        for name, source in sources.items():
            folder = pathlib.Path(scratch, name)
            good &= read_back(folder, darl(program, "export", *source, "--seed", "1", "--out", str(folder)))
            if transformers:
                good &= compare_logits(program, folder, scratch, transformers, torch) < TOLERANCE
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
