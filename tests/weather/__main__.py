"""The tests on machines that differ: `python -m tests.weather [names] [-- what pytest gets]`.

Each is one run of the tests under several conditions, so that a few runs meet all of them; without names all run.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LATER = 400 * 24 * 3600  # seconds, so that another year has begun
Weather = Callable[[Path], dict[str, str]]


def basic(_folder: Path) -> dict[str, str]:
    """No vector instructions, one thread, ASCII, a day ahead of most places, and a home that can't be written."""
    return {
        "ATEN_CPU_CAPABILITY": "default",
        "OMP_NUM_THREADS": "1",
        "TZ": "Pacific/Kiritimati",
        "HOME": "/sys",
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "PYTHONWARNDEFAULTENCODING": "1",
    }


def other(folder: Path) -> dict[str, str]:
    """Vectors of 256 bits, MKL's slowest way, four threads, numbers with commas, and next year."""
    language, clock = (
        folder / "de_DE.UTF-8",
        folder.with_name("later.so"),
    )  # LD_PRELOAD takes no path with a space
    run("localedef", "-f", "UTF-8", "-i", "de_DE", str(language))
    run(
        "cc",
        "-shared",
        "-fPIC",
        "-O1",
        "-o",
        str(clock),
        str(Path(__file__).with_name("later.c")),
        "-ldl",
    )
    return {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "OMP_NUM_THREADS": "4",
        "OMP_WAIT_POLICY": "PASSIVE",
        "LOCPATH": str(folder),
        "LC_ALL": language.name,
        "LD_PRELOAD": str(clock),
        "LATER": str(LATER),
    }


def noise(_folder: Path) -> dict[str, str]:
    """The last bit of every matrix product moves."""
    return {"ATTENTION_LAB_NOISE": "1"}


WEATHERS: dict[str, Weather] = {weather.__name__: weather for weather in (basic, other, noise)}


def run(*command: str) -> None:
    try:
        subprocess.run(command, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"{command[0]} failed ({error}). On Debian and Ubuntu: apt-get install gcc locales"
        )


def checkout(folder: Path) -> Path:
    """A copy of the files of this checkout under a path with spaces, with the installed packages."""
    copy = folder / "attention lab"
    listed = subprocess.run(
        ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"),
        cwd=ROOT,
        check=True,
        capture_output=True,
        encoding="utf-8",
    )
    for name in listed.stdout.split("\0"):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)
    for name in (".venv", "tests/components/node_modules"):
        (copy / name).symlink_to(ROOT / name)
    run("git", "init", "--quiet", str(copy))
    run("git", "-C", str(copy), "add", "--all")  # tests ask it for the lab's files
    return copy


def main() -> None:
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut] or list(WEATHERS), arguments[cut + 1 :]
    if unknown := set(names) - WEATHERS.keys():
        sys.exit(
            f"no weather is called {', '.join(sorted(unknown))}; choose from {', '.join(WEATHERS)}"
        )
    failed = []
    for name in names:
        with tempfile.TemporaryDirectory(prefix="w") as folder:
            print(f"{name}: {WEATHERS[name].__doc__}", flush=True)
            work = Path(folder, "a b")  # what the tests write has a path with a space, too
            work.mkdir()
            environment = {
                **os.environ,
                "ATTENTION_LAB_WEATHER": name,
                "TMPDIR": str(work),
                **WEATHERS[name](work),
            }
            where = checkout(work) if name == "other" else ROOT
            command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options)
            failed += [name] * (subprocess.run(command, cwd=where, env=environment).returncode != 0)
    sys.exit(f"the tests fail in: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
