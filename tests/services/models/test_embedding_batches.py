"""Passages are sent to the model in batches by their tokens, so that none blocks the thread for long."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.prompt.budget import estimate_tokens
from services.models.embedding import PASSAGE_BATCH, PASSAGE_BATCH_TOKENS, _lower_priority, passage_batches

TEXTS = st.lists(st.sampled_from(["", "fee", "费用" * 40, "a fee " * 60, "费用" * 400]), max_size=80)


@given(TEXTS)
def test_batches_keep_every_text_in_order(texts: list[str]) -> None:
    """Discriminates: a last batch that is not yielded."""
    assert [text for batch in passage_batches(texts) for text in batch] == texts


@given(TEXTS)
def test_a_batch_of_several_texts_stays_within_its_limits(texts: list[str]) -> None:
    """Discriminates: the previous batch's room carried over; no limit on the number of texts."""
    for batch in passage_batches(texts):
        assert 1 <= len(batch) <= PASSAGE_BATCH
        assert len(batch) == 1 or sum(map(estimate_tokens, batch)) <= PASSAGE_BATCH_TOKENS


@pytest.mark.skipif(sys.platform != "linux", reason="niceness belongs to the process")
def test_a_server_that_already_has_a_higher_niceness_keeps_it() -> None:
    """Discriminates: always setting the niceness of passages. Without the right to lower it, as under
    systemd's `Nice=` or `nice -n 15` for anybody but root, no document could be ingested."""

    def niceness() -> int:
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, 19)
        _lower_priority()
        return os.getpriority(os.PRIO_PROCESS, thread)

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(niceness).result() == 19
