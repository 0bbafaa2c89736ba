"""The tests on machines that differ: `python -m tests.weather [names] [-- what pytest gets]`.

Each is one run of the tests under several conditions, so that a few runs meet all of them; without names all run. A name
such as 3.13-cpu is a Python and the build of PyTorch: the CPU's, or that which pip gives by default.
"""

import os
import re
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
    # LD_PRELOAD takes no path with a space
    language, clock = (folder / "de_DE.UTF-8", folder.with_name("later.so"))
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


def python_of(name: str) -> str:
    """The interpreter of an environment with that Python and build, which is kept; FileNotFoundError says what is missing."""
    version, build = name.split("-")
    folder = Path(sys.prefix) / "weather" / name
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        command = f"python{version}"
        # A command that is there may run nothing, as pyenv's often do.
        if (
            not shutil.which(command)
            or subprocess.run([command, "-c", ""], stderr=subprocess.DEVNULL).returncode
        ):
            raise FileNotFoundError(f"no {command} runs here")
        subprocess.run([command, "-m", "venv", str(folder)], check=True)
    pip = [python, "-m", "pip", "install", "--quiet"]
    if build == "cpu":
        page = (ROOT / "dashboard" / "requirements.txt").read_text(encoding="utf-8")
        words = re.search("^--find-links .*", page, re.MULTILINE)[0].split()
        pins = (ROOT / "requirements.txt").read_text(encoding="utf-8")
        torch = re.search("^torch==.*", pins, re.MULTILINE)[0]
        if subprocess.run(
            [*pip, "--no-index", "--no-deps", "--retries", "0", *words, torch], cwd=ROOT
        ).returncode:
            raise FileNotFoundError("pip finds no CPU build of PyTorch for this Python")
    subprocess.run([*pip, "-r", "requirements.txt", "-e", ".[dev]"], cwd=ROOT, check=True)
    return python


def main() -> None:
    arguments = sys.argv[1:]
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    names, options = arguments[:cut] or list(WEATHERS), arguments[cut + 1 :]
    pythons = {name for name in names if re.fullmatch(r"3\.\d+-(cpu|default)", name)}
    if unknown := set(names) - WEATHERS.keys() - pythons:
        sys.exit(
            f"no weather is called {', '.join(sorted(unknown))}; choose from {', '.join(WEATHERS)}, and Pythons such as "
            "3.13-cpu and 3.13-default"
        )
    failed = []
    for name in names:
        if name in pythons:
            try:
                command = (python_of(name), "-m", "pytest", "-p", "no:cacheprovider", *options)
                print(f"{name}: an environment of its own", flush=True)
                failed += [name] * (subprocess.run(command, cwd=ROOT).returncode != 0)
            except FileNotFoundError as error:
                print(f"{name}: left out, {error}", flush=True)
            except subprocess.CalledProcessError as error:
                print(f"{name}: {error}", flush=True)
                failed.append(name)
            continue
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
