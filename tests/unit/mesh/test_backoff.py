from anchorwatch.mesh.managed_process import BACKOFF_S_MAX, HEALTHY_S, Backoff
from hypothesis import given
from hypothesis import strategies as st


def test_first_restart_is_immediate_and_later_delays_double() -> None:
    backoff = Backoff()
    assert [backoff.after(ran_s=1) for _ in range(9)] == [0, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10, 10]


def test_healthy_run_resets_the_backoff() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(ran_s=1)
    assert backoff.after(ran_s=HEALTHY_S) == 0
    assert backoff.after(ran_s=1) == 0.2


@given(st.lists(st.floats(0, 100), max_size=2000))
def test_backoff_never_exceeds_its_maximum(runs: list[float]) -> None:
    backoff = Backoff()
    assert all(0 <= backoff.after(ran) <= BACKOFF_S_MAX for ran in runs)
