#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the source tree and reports what breaks the house rules (docs/architecture.md). Exit 1 when anything does.

    tidy.py ROOT            check the tree
    tidy.py --self-test     plant one violation of each rule in a scratch tree and see that it is found
"""
import os
import re
import subprocess
import sys
import tempfile

SOURCE = (".hpp", ".cpp", ".h", ".c", ".cu", ".hip")
HEADER_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 1000

# layer -> what its files may include from the project
CORE = {
    "base": {"base"},
    "lease": {"base", "lease"},
    "round": {"base", "round"},
    "merge": {"base", "merge"},
    "plan": {"base", "plan"},
    "ledger": {"base", "lease", "round", "merge", "ledger"},
    "site": {"base", "lease", "round", "merge", "ledger", "site"},
}
CORE["testing"] = set(CORE) | {"testing"}
# the umbrella sees every core layer
ALL_CORE = set(CORE)

BANNED_IN_CORE = [
    (r"#include <(thread|mutex|shared_mutex|condition_variable|future|atomic|stop_token|semaphore)>", "threads belong in backends"),
    (r"#include <(random|chrono|ctime|time\.h|filesystem|fstream|iostream|format|expected|print|source_location|ranges|unistd\.h)>",
     "the core has no clock, I/O, environment or library distributions"),
    (r"std::shuffle\b|std::random_device|std::(uniform|normal|bernoulli)_\w*distribution", "its output differs between libraries"),
    (r"\bgetenv\s*\(|\bsystem\s*\(|\btime\s*\(\s*(NULL|nullptr|0)\s*\)", "the core reads no environment and no clock"),
    (r"std::(cout|cerr|clog)\b|\bprintf\s*\(", "the core prints nothing"),
    (r"\brand\s*\(\s*\)", "own engines with a documented stream only"),
]
ALLOWED_IN_CORE = {"include/darlcore/assert.hpp": ["printf"]}  # the default assertion handler writes to stderr before it aborts

WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SECRETS = [re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), re.compile(r"\bAKIA[0-9A-Z]{16}\b"), re.compile(r"\bgh[pousr]_[A-Za-z0-9]{36}\b"),
           re.compile(r"\bhf_[A-Za-z0-9]{34}\b")]
MACHINE = re.compile(r"(^|[^A-Za-z0-9_.$}-])/(work|root|farm)/")


class Report:
    def __init__(self):
        self.findings = []

    def add(self, path, line, rule, text):
        self.findings.append(f"{path}:{line}: [{rule}] {text}")


def layer_of(path):
    parts = path.split("/")
    if path.startswith("include/darlcore/"):
        return parts[2] if len(parts) > 3 else "base"
    if parts[0] == "backends" and len(parts) > 2:
        return "backend"
    if path.startswith("adapters/formats/"):
        return "formats"
    if parts[0] == "adapters":
        return "adapter"
    return parts[0]


def check_includes(path, lines, report):
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        m = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
        if not m:
            continue
        target = m.group(1)
        if target.startswith("darlcore/"):
            to = layer_of("include/" + target)
        elif target.startswith(("backends/", "adapters/", "tests/", "bench/", "fuzz/")):
            to = layer_of(target)
        else:
            if path.startswith("include/darlcore/"):
                report.add(path, number, "layers", f'core headers include as "darlcore/...", not "{target}"')
            continue
        if layer in CORE:
            if path == "include/darlcore/darlcore.hpp":
                allowed = ALL_CORE - {"testing"}
            else:
                allowed = CORE[layer]
        elif layer == "formats":
            allowed = ALL_CORE | {"formats"}
        elif layer == "backend":
            allowed = ALL_CORE | {"backend", "formats"}
        elif layer == "adapter":
            allowed = ALL_CORE | {"backend", "formats", "adapter"}
        else:
            continue
        if layer not in ("testing", "tests") and to == "testing" and layer != "base":
            report.add(path, number, "layers", f"{layer} must not depend on testing ({target})")
        elif to not in allowed:
            report.add(path, number, "layers", f"{layer} must not include {to} ({target})")


def check_core(path, lines, report):
    if not path.startswith("include/darlcore/") or path.startswith("include/darlcore/testing/"):
        return
    for number, line in enumerate(lines, 1):
        code = line.split("//")[0]
        for pattern, why in BANNED_IN_CORE:
            m = re.search(pattern, code)
            if m and not any(word in m.group(0) for word in ALLOWED_IN_CORE.get(path, [])):
                report.add(path, number, "core", f"'{m.group(0)}': {why}")


def check_functions(path, lines, report):
    """A function body opens on a line that ends in '{' after ')' (or a qualifier) and closes at the same indentation."""
    opener = re.compile(r"^( *)(?!namespace|class|struct|enum|union|extern|if|for|while|switch|else|do|try|TEST|RC_GTEST|BENCHMARK)"
                        r"[\w~].*(\)|\) const|\) noexcept|const noexcept|override|\)\s*->\s*[\w:<>,&* ]+)\s*\{$")
    i = 0
    while i < len(lines):
        m = opener.match(lines[i])
        if m and len(m.group(1)) <= 4 and not lines[i].rstrip().endswith("= {"):
            indent = m.group(1)
            for j in range(i + 1, len(lines)):
                if lines[j].startswith(indent + "}"):
                    if j - i + 1 > FUNCTION_LINES_MAX:
                        report.add(path, i + 1, "sizes", f"function of {j - i + 1} lines (at most {FUNCTION_LINES_MAX})")
                    break
        i += 1


def check_file(root, path, report):
    with open(os.path.join(root, path), "rb") as f:
        raw = f.read()
    if path.endswith(SOURCE) or path.endswith((".cmake", "CMakeLists.txt", ".py")) or path.startswith("scripts/"):
        text = raw.decode("utf-8", "replace")
        lines = text.split("\n")
        for number, line in enumerate(lines, 1):
            if any(ord(c) > 126 or (ord(c) < 32 and c != "\t") for c in line) and not path.endswith((".cmake", "CMakeLists.txt")):
                report.add(path, number, "ascii", "only printable ASCII in sources")
            if WORDS.search(line) and not path.startswith("tests/tidy/"):
                report.add(path, number, "words", "unfinished work is an issue, not a comment")
        if path.endswith(SOURCE):
            if not lines[0].startswith("// SPDX-License-Identifier: Apache-2.0"):
                report.add(path, 1, "licence", "the first line names the licence")
            check_includes(path, lines, report)
            check_core(path, lines, report)
            check_functions(path, lines, report)
            if path.startswith("include/") and len(lines) - 1 > HEADER_LINES_MAX:
                report.add(path, 1, "sizes", f"public header of {len(lines) - 1} lines (at most {HEADER_LINES_MAX})")
            elif len(lines) - 1 > FILE_LINES_MAX:
                report.add(path, 1, "sizes", f"file of {len(lines) - 1} lines (at most {FILE_LINES_MAX})")
            if path.startswith("tests/"):
                for number, line in enumerate(lines, 1):
                    if re.search(r"\bsleep_for\b|\busleep\s*\(|\bsleep\s*\(", line) and "tidy: sleep" not in line:
                        report.add(path, number, "tests", "no sleep as synchronisation (a comment 'tidy: sleep, <reason>' allows one)")
        if path.endswith((".cmake", "CMakeLists.txt")) and re.search(r"file\s*\(\s*GLOB", text):
            report.add(path, 1, "cmake", "explicit file lists, no globs")
    if not path.startswith(("tests/data/", "fuzz/corpus/", "tests/tidy/")):
        text = raw.decode("utf-8", "replace")
        for number, line in enumerate(text.split("\n"), 1):
            if any(s.search(line) for s in SECRETS):
                report.add(path, number, "secrets", "looks like a key")
            if MACHINE.search(line):
                report.add(path, number, "paths", "path of one machine")
            if re.match(r"^(<<<<<<<|>>>>>>>)( |$)", line):
                report.add(path, number, "merge", "left-over conflict marker")


def check_header_lists(root, files, report):
    for part in ("base", "lease", "round", "merge", "plan", "ledger", "site", "testing"):
        list_path = f"cmake/headers/{part}.cmake"
        try:
            with open(os.path.join(root, list_path)) as f:
                listed = set(re.findall(r"include/darlcore/[\w/]+\.hpp", f.read()))
        except OSError:
            continue
        prefix = "include/darlcore/" + ("" if part == "base" else part + "/")
        on_disk = {p for p in files if p.startswith(prefix) and p.endswith(".hpp") and (part != "base" or p.count("/") == 2)}
        for p in sorted(on_disk - listed):
            report.add(p, 1, "lists", f"not listed in {list_path}")
        for p in sorted(listed - on_disk):
            report.add(list_path, 1, "lists", f"lists {p}, which is not there")


def tracked_files(root):
    try:
        out = subprocess.run(["git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard"], capture_output=True, text=True, check=True)
        return [p for p in out.stdout.split("\n") if p and os.path.isfile(os.path.join(root, p))]
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, _, names in os.walk(root):
            found += [os.path.relpath(os.path.join(folder, n), root) for n in names]
        return [p for p in found if not p.startswith((".git/", "build/"))]


def check_tree(root):
    report = Report()
    files = tracked_files(root)
    for path in files:
        check_file(root, path, report)
    check_header_lists(root, files, report)
    return report.findings


def self_test():
    spdx = "// SPDX-License-Identifier: Apache-2.0\n"
    long_function = "int f() {\n" + "    g();\n" * 80 + "}\n"
    planted = {
        "layers": ("include/darlcore/lease/a.hpp", spdx + '#include "darlcore/round/b.hpp"\n'),
        "core": ("include/darlcore/a.hpp", spdx + "#include <thread>\n"),
        "ascii": ("backends/host/a.cpp", spdx + "// caf\u00e9\n"),
        "words": ("backends/host/a.cpp", spdx + "// TODO later\n"),
        "licence": ("backends/host/a.cpp", "int x;\n"),
        "sizes": ("backends/host/a.cpp", spdx + long_function),
        "tests": ("tests/host/a.cpp", spdx + "void f() { sleep(1); }\n"),
        "cmake": ("backends/host/CMakeLists.txt", "file(GLOB x *.cpp)\n"),
        "secrets": ("docs/a.md", "ghp_" + "a" * 36 + "\n"),
        "paths": ("docs/a.md", "see /" + "work/x\n"),
        "merge": ("docs/a.md", "<" * 7 + " HEAD\n"),
        "lists": ("include/darlcore/lease/unlisted.hpp", spdx),
    }
    failed = 0
    for rule, (path, text) in planted.items():
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, os.path.dirname(path)))
            os.makedirs(os.path.join(root, "cmake/headers"))
            with open(os.path.join(root, "cmake/headers/lease.cmake"), "w") as f:
                f.write("set(DARLCORE_HEADERS_LEASE)\n")
            with open(os.path.join(root, path), "w") as f:
                f.write(text)
            if not any(f"[{rule}]" in finding for finding in check_tree(root)):
                print(f"self-test: rule '{rule}' did not fire on {path}")
                failed += 1
    print(f"self-test: {len(planted) - failed} of {len(planted)} rules fire")
    return 1 if failed else 0


def main():
    if len(sys.argv) == 2 and sys.argv[1] == "--self-test":
        return self_test()
    if len(sys.argv) != 2:
        print(__doc__)
        return 2
    findings = check_tree(sys.argv[1])
    for finding in findings:
        print(finding)
    print(f"tidy: {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
