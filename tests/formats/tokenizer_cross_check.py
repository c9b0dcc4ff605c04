#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ids and decoded texts beside the independent Python package `tokenizers`, on random strings.

    tokenizer_cross_check.py ENCODE_TEXTS TOKENIZER_FOLDER [STRINGS]     exit 0 = equal, 1 = not, 77 = not installed

DARLCORE_JUDGES names a virtual environment that has the package (scripts/judges makes one); without it the running
Python is asked. STRINGS (default 10000, DARLCORE_CROSS_CHECK_STRINGS) are split over the tokenizers.
"""
import copy
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

SKIPPED = 77
PIECES = (
    ["'s", "'S", "'RE", "'ll", "\u017f", "'\u017f", "the", " the", "ing", "\r\n", "\n\n", "\t", "  ", " ", "\u00a0", "\u2003", "\u3000",
     "\u180e", "\u200b", "\u200d", "\u0301", "\u0323", "e\u0301", "\uac00", "\u1112\u1161\u11ab", "\u2126", "<|endoftext|>",
     "<|im_start|>", "<tool_call>", "<|begin_of_text|>", "<|", "\u0663", "\u2167", "\u00bd", "12", "345", "\U0001f600", "\U0001f3fd",
     "hello", "World", "don't", "x" * 70, " " * 30, "ab" * 40, "..", "!?", "://", "_", "\x00", "\x7f", "\u0130", "\u212a"]
)
RANGES = [(0x20, 0x7f), (0xa0, 0x17f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x45f), (0x5d0, 0x5ea), (0x620, 0x64a), (0x900, 0x94f),
          (0xe01, 0xe3a), (0x1100, 0x11c2), (0x1e00, 0x1eff), (0x2000, 0x206f), (0x3040, 0x30ff), (0x4e00, 0x4fff), (0xac00, 0xad00),
          (0xf900, 0xf9ff), (0x1f300, 0x1f64f), (0x1d400, 0x1d4ff)]
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def one_text(rng):
    out = []
    for _ in range(rng.randrange(25)):
        if rng.random() < 0.5:
            out.append(rng.choice(PIECES))
            continue
        c = chr(rng.randrange(*rng.choice(RANGES)))
        if unicodedata.category(c) not in ("Cn", "Cs"):  # unassigned: as new as each library's tables
            out.append(c)
    return "".join(out)


def variants(folder):
    """The files as they are, and with settings that they do not use."""
    files = {path.name: json.loads(path.read_text()) for path in sorted(pathlib.Path(folder).glob("*.tokenizer.json"))}
    yield from files.items()
    prefix = copy.deepcopy(files["gpt2.tokenizer.json"])
    prefix["pre_tokenizer"]["add_prefix_space"] = True
    yield "gpt2 with a space put first", prefix
    digits = copy.deepcopy(files["gpt2.tokenizer.json"])
    digits["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True},
                                                                    digits["pre_tokenizer"]]}
    yield "gpt2 with single digits", digits
    groups = copy.deepcopy(files["qwen.tokenizer.json"])
    groups["pre_tokenizer"]["pretokenizers"].insert(0, {"type": "Digits", "individual_digits": False})
    groups["added_tokens"][3]["normalized"] = True
    yield "qwen with runs of digits and a normalised token", groups
    cased = copy.deepcopy(files["llama3.tokenizer.json"])
    cased["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = GPT4O
    yield "llama3 with a pattern that knows case", cased
    removed = copy.deepcopy(files["llama3.tokenizer.json"])
    removed["pre_tokenizer"]["pretokenizers"][0].update({"behavior": "Removed", "invert": True})
    yield "llama3 with matches only", removed
    gaps = copy.deepcopy(files["qwen.tokenizer.json"])
    gaps["pre_tokenizer"]["pretokenizers"][0].update({"behavior": "Removed", "pattern": {"String": "e "}})
    yield "qwen with a removed text", gaps


def compare(program, name, document, texts, scratch, library):
    path = pathlib.Path(scratch, "tokenizer.json")
    path.write_text(json.dumps(document))
    pathlib.Path(scratch, "texts.json").write_text(json.dumps(texts))
    ran = subprocess.run([program, str(path), scratch + "/texts.json"], check=True, capture_output=True, text=True)
    ours = json.loads(ran.stdout)
    theirs = library.Tokenizer.from_file(str(path))
    wrong = 0
    for text, ids, decoded in zip(texts, ours["ids"], ours["texts"]):
        expected = theirs.encode(text, add_special_tokens=False).ids
        back = theirs.decode(expected, skip_special_tokens=False)
        if ids != expected or decoded != back:
            wrong += 1
            if wrong <= 3:
                print(f"{name}: {text!r}\n  ours   {ids} {decoded!r}\n  theirs {expected} {back!r}")
    print(f"{name}: {len(texts)} strings, {sum(map(len, ours['ids']))} ids, {wrong} differ")
    return wrong


def main():
    judges = os.environ.get("DARLCORE_JUDGES")
    if judges and pathlib.Path(sys.prefix).resolve() != pathlib.Path(judges).resolve():
        python = os.path.join(judges, "bin", "python")
        return subprocess.run([python, *sys.argv], check=False).returncode
    try:
        import tokenizers
    except ImportError:
        print("skipped: the Python package tokenizers is not installed (scripts/judges FOLDER, then DARLCORE_JUDGES=FOLDER)")
        return SKIPPED
    program, folder = sys.argv[1], sys.argv[2]
    count = int(sys.argv[3] if len(sys.argv) > 3 else os.environ.get("DARLCORE_CROSS_CHECK_STRINGS", "10000"))
    rng = random.Random(20)
    cases = list(variants(folder))
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, document in cases:
            texts = [one_text(rng) for _ in range(-(-count // len(cases)))]
            wrong += compare(program, name, document, texts, scratch, tokenizers)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
