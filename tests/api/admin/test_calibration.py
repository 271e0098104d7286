from api.admin.calibration import Verdicts, verdicts


def test_verdicts_are_counted_by_threshold() -> None:
    """Discriminates: a threshold above the sure score that shows what it refuses."""
    assert verdicts([0.05, 0.1, 0.44, 0.45, 0.9], 0.1) == Verdicts(sure=2, closest=2, refused=1)
    assert verdicts([0.45, 0.6], 0.5) == Verdicts(sure=1, closest=0, refused=1)
