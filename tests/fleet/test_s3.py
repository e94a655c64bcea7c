"""Sources and stores in an S3 of our own, on the loopback address."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlomem.base.errors import InputError
from hlomem.fleet import ask, scan
from hlomem.fleet.questions import answer
from tests.places import GOLDENS

pytest.importorskip("duckdb")
s3fs = pytest.importorskip("s3fs")
moto = pytest.importorskip("moto.server")

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bucket with two programs, one of them in an archive."""
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    patch = pytest.MonkeyPatch()
    for name, value in (
        ("AWS_ENDPOINT_URL", f"http://{host}:{port}"),
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("NO_PROXY", "127.0.0.1"),
    ):
        patch.setenv(name, value)
    files = s3fs.S3FileSystem(skip_instance_cache=True)
    files.mkdir("fleet")
    folder = tmp_path_factory.mktemp("upload")
    shutil.copytree(GOLDENS / "pairs/batch_doubled/before", folder / "dumps/before")
    with tarfile.open(folder / "dumps/more.tar.gz", "w:gz") as tape:
        tape.add(GOLDENS / "pairs/batch_doubled/after", "after")
    files.put(str(folder / "dumps"), "fleet/dumps", recursive=True)
    yield "s3://fleet"
    server.stop()
    patch.undo()


def test_a_bucket_is_scanned_into_a_store_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    local, remote = tmp_path / "store", f"{bucket}/store"
    for store in (local, remote):
        done = scan([f"{bucket}/dumps"], store, run="a", workers=1)
        assert (done.modules, done.errors) == (2, 0)
        again = scan([f"{bucket}/dumps"], store, run="a", workers=1)
        assert (again.read, again.skipped) == (0, 2)
        other = scan([f"{bucket}/dumps"], store, run="b", workers=1)
        assert (other.read, other.carried) == (0, 2)
    query = "SELECT run, place, needs, peak, source FROM modules ORDER BY ALL"
    assert ask(local, query).fetchall() == ask(remote, query).fetchall()
    assert {row[0] for row in ask(remote, "SELECT left(source, 5) FROM modules").fetchall()} == {
        "s3://"
    }
    assert answer(remote, "grown", since="a").totals["same"] == 2


def test_what_is_not_in_the_bucket_is_said(bucket: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="s3://fleet/nothing: "):
        scan([f"{bucket}/nothing"], tmp_path / "store")
