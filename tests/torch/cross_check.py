#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exported model read by independent implementations: the safetensors package, and transformers where it is installed.

    cross_check.py DARL      exit 0 = equal, 1 = not, 77 = the packages are not installed
"""
import json
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77


def darl(program, *arguments):
    return json.loads(subprocess.run([program, "--json", *arguments], check=True, capture_output=True, text=True).stdout)


def main():
    try:
        from safetensors.numpy import load_file
    except ImportError:
        print("skipped: the Python packages safetensors and numpy are not installed")
        return SKIPPED
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch, "model")
        said = darl(program, "export", "--flavour", "debug-1m", "--seed", "1", "--out", str(folder))
        tensors = load_file(folder / "model.safetensors")
        elements = sum(t.size for t in tensors.values())
        print(f"safetensors: {len(tensors)} tensors, {elements} elements")
        if elements != said["parameters"]:
            print(f"differs from the {said['parameters']} that darl names")
            return 1
        try:
            import torch
            from transformers import AutoModelForCausalLM
        except ImportError:
            print("logits not compared: the Python packages torch and transformers are not installed")
            return 0
        ids = [[(7 * i * i + 3) % 256 for i in range(40)]]
        pathlib.Path(scratch, "ids.json").write_text(json.dumps(ids))
        ours = torch.tensor(darl(program, "logits", "--model", str(folder), "--ids", scratch + "/ids.json")["logits"][0])
        model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float32).eval()
        with torch.no_grad():
            theirs = model(torch.tensor(ids)).logits[0]
        worst = ((ours - theirs).abs().max() / theirs.abs().max()).item()
        print(f"logits: largest difference {worst:.2e} of the largest logit")
        return 0 if worst < 2e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
