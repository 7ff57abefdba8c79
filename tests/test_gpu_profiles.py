"""The cards that can be simulated: names, figures, and what is refused."""

from __future__ import annotations

import pytest

from gpumemtrace.capture.gpu_profiles import PROFILES, find_profile, make_profile
from gpumemtrace.cli.main import main
from gpumemtrace.errors import InstallError


def test_the_promised_cards_are_there() -> None:
    keys = {profile.key for profile in PROFILES}
    assert keys == {"h200", "h100", "a100-40gb", "a100-80gb", "l40s", "l4", "rtx4090", "t4"}


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("H100", "h100"),
        ("nvidia h200", "h200"),
        ("A100_40GB", "a100-40gb"),
        ("a100", "a100-80gb"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("Tesla T4", "t4"),
        ("L4", "l4"),
        ("l40s", "l40s"),
    ],
)
def test_a_card_is_found_however_it_is_written(text: str, key: str) -> None:
    assert find_profile(text).key == key


def test_no_two_cards_share_a_name() -> None:
    for profile in PROFILES:
        for name in (profile.key, profile.name, *profile.aliases):
            assert find_profile(name) is profile


def test_an_unknown_card_names_the_known_ones() -> None:
    with pytest.raises(InstallError, match=r"h9000.*h200, h100.*--memory and --compute-capab"):
        find_profile("h9000")


def test_figures_are_sane_and_have_a_source() -> None:
    for profile in PROFILES:
        assert 14 << 30 < profile.memory_bytes < 150 << 30
        assert profile.memory_source
        assert profile.source
        variables = profile.sim_variables()
        assert variables["GPUMEMTRACE_SIM_MEMORY_BYTES"] == str(profile.memory_bytes)
        assert all(value for value in variables.values())


def test_any_other_card_by_memory_and_compute_capability() -> None:
    profile = make_profile("24GiB", "8.6")
    assert profile.memory_bytes == 24 << 30
    assert profile.compute_capability == (8, 6)
    assert profile.sm_count == 72
    assert make_profile("24GB", "9.0", sm_count=7).sm_count == 7
    assert make_profile("24GB", "9.0").memory_bytes == 24 * 10**9


@pytest.mark.parametrize(
    ("capability", "like", "sm_count"),
    [
        ("7.2", "7.0", 80),
        ("8.8", "8.7", 16),
        ("11.0", "10.3", 148),
        ("12.1", "12.0", 48),
        ("12.9", "12.0", 48),
    ],
)
def test_a_compute_capability_without_figures_takes_those_below_it(
    capability: str, like: str, sm_count: int
) -> None:
    found = make_profile("24GiB", capability).sim_variables()
    below = make_profile("24GiB", like, sm_count=sm_count).sim_variables()
    assert found["GPUMEMTRACE_SIM_COMPUTE_CAPABILITY"] == capability
    own = ("GPUMEMTRACE_SIM_COMPUTE_CAPABILITY", "GPUMEMTRACE_SIM_NAME")
    assert {k: v for k, v in found.items() if k not in own} == {
        k: v for k, v in below.items() if k not in own
    }


@pytest.mark.parametrize(
    ("memory", "capability", "sm_count", "message"),
    [
        ("lots", "9.0", None, "is not a size"),
        ("1MiB", "9.0", None, "64 MiB"),
        ("24GiB", "9", None, "compute-capability '9' is not two numbers like 9.0 or 12.1"),
        ("24GiB", "sm_90", None, "'sm_90' is not two numbers"),
        ("24GiB", "9.01", None, "'9.01' is not two numbers"),
        ("24GiB", "6.1", None, "6.1: from 7.0 .V100. to 12.9 can be simulated"),
        ("24GiB", "13.0", None, "13.0: from 7.0 .V100. to 12.9 can be simulated"),
        ("24GiB", "9.0", 0, "at least one SM"),
    ],
)
def test_what_makes_no_sense_is_refused(
    memory: str, capability: str, sm_count: int | None, message: str
) -> None:
    with pytest.raises(InstallError, match=message):
        make_profile(memory, capability, sm_count=sm_count)


def test_memory_alone_says_which_cards_have_which_compute_capability(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["simulate", "--memory", "24GiB", "train.py"]) == 1
    said = capsys.readouterr().err
    assert "--memory needs --compute-capability too" in said and "8.9 for an RTX 4090" in said
