"""From a URL to its journal, also to one of another package."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.journals import read_all
from support.records import embedded
from warmindex.errors import InvalidError
from warmindex_server.journal.memory import MemoryJournal
from warmindex_server.journal.registry import open_journal, recover_journal
from warmindex_server.journal.sqlite import SqliteJournal

OTHER_JOURNAL = """
from warmindex_server.journal.memory import MemoryJournal


def open_url(url, options):
    journal = MemoryJournal()
    journal.opened_as = url
    return journal
"""


def test_a_url_names_its_journal(tmp_path):
    """Nothing is opened before start()."""
    assert isinstance(open_journal("memory"), MemoryJournal)
    assert isinstance(open_journal("memory://"), MemoryJournal)
    assert isinstance(open_journal(f"sqlite:///{tmp_path}/warm.db"), SqliteJournal)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("url", ["", "postgres://me:secret@db/x", "warm.db", "SQLITE:///x"])
def test_an_unknown_url_is_refused_with_those_that_are_known(url):
    """The message names the choices and shows no password."""
    with pytest.raises(InvalidError, match="sqlite:///PATH") as caught:
        open_journal(url)
    assert caught.value.field == "journal"
    assert "secret" not in str(caught.value)


async def test_the_memory_journal_has_nothing_to_recover():
    """--recover without a journal that keeps anything is a mistake."""
    with pytest.raises(InvalidError, match="keeps nothing"):
        await recover_journal("memory")


async def test_another_package_adds_a_journal(tmp_path, monkeypatch):
    """An entry point and one module are all it takes."""
    information = tmp_path / "other_journal-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: other-journal\nVersion: 1.0"
    )
    (information / "entry_points.txt").write_text("[warmindex.journals]\nother = other_journal\n")
    (tmp_path / "other_journal.py").write_text(OTHER_JOURNAL)
    monkeypatch.syspath_prepend(tmp_path)
    journal = open_journal("other://somewhere")
    assert journal.opened_as == "other://somewhere"
    await journal.append([embedded(1)])
    assert len(await read_all(journal)) == 1


def test_without_the_redis_package_the_message_says_how_to_get_it():
    """The client library is an extra; everything else works without it."""
    program = (
        "import sys; sys.modules['redis'] = None\n"
        "from warmindex_server.journal.registry import open_journal\n"
        "open_journal('memory')\n"
        "open_journal('redis://cache')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert "warmindex[redis]" in run.stderr.splitlines()[-1]
