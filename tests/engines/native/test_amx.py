"""The path for AMX: when it is used, and the instructions that its functions are made of.

Its numbers are tested in emulation with those of the other sets, in `test_kernels.py`.
"""

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from samgraph.engines.native.library import load_kernels
from tests.engines.native.compilers import SOURCES, compile_c, own_compiler
from tests.engines.native.emulation import library_with_tiles

TILE_INSTRUCTIONS = {"ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", "tdpbf16ps"}
WRONG_NUMBERS, ILLEGAL, ENDLESS, FORBIDDEN = range(1, 5)  # of tiles.h


def widest(*options: str) -> str:
    """The instructions that are chosen where AMX is announced."""
    return load_kernels(library_with_tiles("-DSG_PROBE_SECONDS=1", *options))[-1].instructions


def test_tiles_that_work_are_used() -> None:
    assert widest() == "amx_bf16"


@pytest.mark.parametrize("fault", [WRONG_NUMBERS, ILLEGAL, ENDLESS, FORBIDDEN])
def test_tiles_that_do_not_work_are_not_used(fault: int) -> None:
    assert widest(f"-DSG_TILES_FAULT={fault}") == "avx512_bf16"


def shipped(folder: Path, *options: str) -> Path:
    """`attention.c` compiled as for a package; skips where it cannot be looked at."""
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        pytest.skip("AMX is for Linux on x86-64")
    if not shutil.which("objdump"):
        pytest.skip("there is no objdump here")
    library = folder / "attention.lib"
    flags = ("-O3", "-fPIC", "-shared", "-fvisibility=hidden", *options)
    compile_c(own_compiler(), *flags, str(SOURCES / "attention.c"), "-o", str(library))
    return library


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The instructions of each function as it is shipped."""
    return disassembled(shipped(tmp_path_factory.mktemp("amx")))


def disassembled(library: Path) -> dict[str, list[str]]:
    """Lines such as `tilezero %tmm0`, by function."""
    command = ["objdump", "-d", "--no-show-raw-insn", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    functions: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if begin := re.fullmatch(r"[0-9a-f]+ <(.+)>:", line):
            name = begin[1]
        elif found := re.fullmatch(r"\s*[0-9a-f]+:\s+(\S.*)", line):
            functions.setdefault(name, []).append(" ".join(found[1].split()))
    return functions


def test_functions_for_amx_and_no_others_have_its_instructions(
    instructions: dict[str, list[str]],
) -> None:
    found = {
        name: {line.split()[0] for line in lines} & TILE_INSTRUCTIONS
        for name, lines in instructions.items()
    }

    used = {name: tiles for name, tiles in found.items() if tiles}
    assert set().union(*used.values()) == TILE_INSTRUCTIONS
    assert all(name.startswith("amx_") for name in used), used


def test_products_have_keys_or_values_as_rows_and_add_to_the_sums(
    instructions: dict[str, list[str]],
) -> None:
    products = [line for lines in instructions.values() for line in lines if "tdpbf16ps" in line]

    # In this order of operands the last is added to, and the one before it is the one by rows.
    assert len(products) >= 9
    for line in products:
        assert re.fullmatch(r"tdpbf16ps %tmm[4-7],%tmm3,%tmm[0-2]", line), line


@pytest.mark.parametrize("option", ["-DSG_NO_AMX", "-U__linux__"])
def test_it_can_be_left_out(option: str, tmp_path: Path) -> None:
    library = shipped(tmp_path, "-Wall", "-Werror", option)

    assert not [line for lines in disassembled(library).values() for line in lines if "tmm" in line]
