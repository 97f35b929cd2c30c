"""Makes torch of PyPI, which is built for CUDA, importable without CUDA: for each CUDA library that its shared objects name and
that is not there, a library of that name is compiled in which every function that torch may call says "no device".

    python no_cuda.py SITE_PACKAGES
"""

import pathlib
import re
import subprocess
import sys
import tempfile

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)\S*\.so")
CUDA_FUNCTION = re.compile(r"(cu|nccl|nvrtc|nvJit|nvshmem)[A-Z_a-z]")
ERROR_NAMES = re.compile(r"(Error|Status)(String|Name)$|(cublas|cufft|curand|nccl|nvrtc)\w*Get\w*Error\w*$")
NO_DEVICE = 100


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def read(path):
    """The libraries that a shared object needs, the symbols it lacks as (name, version), and the names it defines."""
    needed = re.findall(r"^\s*NEEDED\s+(\S+)", output("objdump", "-p", path), re.M)
    lacking, defined = set(), set()
    for line in output("nm", "-D", path).splitlines():
        *_, kind, symbol = line.split()
        name, _, version = symbol.partition("@")
        if kind in "Uw":
            lacking.add((name, version.lstrip("@")))
        else:
            defined.add(name)
    return needed, lacking, defined


def source(names):
    """Weak references and versions do not matter here; only the names must exist."""
    lines = []
    for name in sorted(names):
        if ERROR_NAMES.search(name):
            lines.append(f'const char *{name}(void) {{ return "no CUDA here"; }}')
        else:
            lines.append(f"int {name}(void) {{ return {NO_DEVICE}; }}")
    return "\n".join(lines) + "\n"


def compile_stand_in(folder, library, versions, plain):
    with tempfile.TemporaryDirectory() as work:
        code = pathlib.Path(work, "code.c")
        code.write_text(source(plain.union(*versions.values())))
        script = pathlib.Path(work, "versions")
        script.write_text("".join(f"{version} {{ global: {'; '.join(sorted(names))}; }};\n" for version, names in versions.items()))
        command = ["gcc", "-shared", "-fPIC", "-w", f"-Wl,-soname,{library}", "-o", str(folder / library), str(code)]
        if versions:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)


def main(site_packages):
    folder = pathlib.Path(site_packages, "torch", "lib")
    objects = [path for path in folder.iterdir() if ".so" in path.name]
    present = {path.name for path in objects}
    needed, lacking, defined = set(), set(), set()
    for path in objects:
        one = read(path)
        needed.update(one[0])
        lacking |= one[1]
        defined |= one[2]
    libraries = sorted(name for name in needed - present if CUDA_LIBRARY.match(name))
    # A symbol's version is mostly the name of its library. The others, and those without a version, may come from any library that is
    # loaded: they go where they are sure to be found.
    home = next(name for name in libraries if name.startswith("libcudart"))
    versions = {name: {} for name in libraries}
    plain = set()
    for name, version in lacking:
        if version in versions:
            versions[version].setdefault(version, set()).add(name)
        elif version == "NVSHMEM":
            library = next((name for name in libraries if "nvshmem" in name), home)
            versions[library].setdefault(version, set()).add(name)
        elif not version and name not in defined and CUDA_FUNCTION.match(name):
            plain.add(name)
    for library in libraries:
        compile_stand_in(folder, library, versions[library], plain if library == home else set())
    print(f"{len(libraries)} CUDA libraries have a stand-in")


if __name__ == "__main__":
    main(sys.argv[1])
