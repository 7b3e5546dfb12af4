"""An executor with a batcher of its own."""

from collections.abc import Iterator

import pytest

from service.engine.batcher import Batcher
from service.engine.executor import Executor


@pytest.fixture
def executor() -> Iterator[Executor]:
    executor = Executor(Batcher(256, 8192))
    yield executor
    executor.close()
