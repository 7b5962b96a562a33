"""The values that a block released come to the host in one copy, and not one by one."""

import jax
import jax.numpy as jnp
import pytest
import small_datalens


def test_a_block_is_waited_for_once(tmp_path, monkeypatch):
    copied, real = [], jax.device_get
    monkeypatch.setattr(jax, "device_get", lambda tree: copied.append(tree) or real(tree))
    monkeypatch.setattr(type(jnp.zeros(())), "__float__",
                        lambda array: pytest.fail("a value was copied by itself"))
    seen = []
    _, ledger = small_datalens.run(
        tmp_path, *small_datalens.images(), steps=2, steps_per_call=1,
        on_block=lambda state, metrics: seen.append(metrics))
    ledger.close()
    assert len(copied) == len(seen) == 2
    assert all(isinstance(value, float) for metrics in seen for value in metrics.values())
