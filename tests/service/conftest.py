"""A store for everything here that needs one."""

from collections.abc import Iterator

import pytest

from service.store.embedded import EmbeddedValkey


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An embedded Valkey that nobody stops in between."""
    valkey = EmbeddedValkey(tmp_path_factory.mktemp("valkey"))
    yield valkey.start()
    valkey.stop()
