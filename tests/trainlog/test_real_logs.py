"""Real logs of public runs, where they lie beside the checkout: first and last step, total, end."""

from pathlib import Path

import pytest

from tests.trainlog.samples import read, steps


@pytest.mark.parametrize(
    ("name", "first", "last", "total"),
    [
        ("logs/L01_nanogpt_resume_completed.log", 1000, 6000, 6000),
        ("logs/L02_nanogpt_elastic_keyerror_crash.log", 0, 0, 100_000),
        ("logs/L04_modded_nanogpt_medium_main.log", 0, 60_000, None),
        ("logs/L05_modded_nanogpt_slurm_completed.out", 0, 2825, 2825),
        ("logs/L07_deepspeed_chat_sft_completed.log", 10, 7360, 7360),
        ("logs/L09_deepspeed_chat_rlhf_completed.log", 0, 476, 477),
        ("logs/L11_megatron_gpt2_256gpu_sigterm.out", 10, 60, 1000),
        ("logs/L12_megatron_deepspeed_3d_no_end_marker.out", 1, 62, 1000),
        ("logs/L13_megatron_ds_zero_4iters_sigterm.out", 1, 4, 1000),
        ("logs/L15_hf_trainer_deepspeed_completed.out", 0, 16, 16),
        ("logs/L17_bloom176b_throughput_drop.log", 42_780, 42_784, 115_311),
        ("logs/L19_megatron_ds_old_two_iters_truncated.out", 1, 2, 1000),
        ("captured/hf_trainer_v5_merged.log", 0, 22, 22),
        ("captured/hf_trainer_v5_stderr.log", 0, 42, 42),
        ("captured/hf_trainer_v5_torchrun_tee.log", 0, 22, 22),
        ("captured/tqdm_monitor_reprint.log", 0, 1000, 2000),
    ],
)
def test_first_and_last_step_and_total(
    traces: Path, name: str, first: int, last: int, total: int | None
) -> None:
    marks = read((traces / name).read_bytes(), 997)
    found = steps(marks)
    assert (found[0], found[-1], max(found)) == (first, last, last)
    assert [m.total for m in marks if m.step is not None][-1] == total


@pytest.mark.parametrize(
    "name",
    [
        "logs/L06_torchrun_importerror_startup_crash.log",
        "logs/L10_deepspeed_llama7b_device_crash.log",
        "logs/L18_bloom176b_cudaerror_crash.log",
        "captured/hf_trainer_v5_stdout.log",
        "captured/lightning_rich_nontty.log",
        "captured/torchrun_crash_kill.log",
        "captured/torchrun_crash_raise.log",
    ],
)
def test_logs_without_a_step_yield_none(traces: Path, name: str) -> None:
    assert steps(read((traces / name).read_bytes(), 997)) == []


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("logs/L02_nanogpt_elastic_keyerror_crash.log", {"traceback", "launcher_exit"}),
        ("logs/L06_torchrun_importerror_startup_crash.log", {"traceback", "launcher_exit"}),
        ("logs/L11_megatron_gpt2_256gpu_sigterm.out", {"signal"}),
        ("logs/L12_megatron_deepspeed_3d_no_end_marker.out", set()),
        ("logs/L18_bloom176b_cudaerror_crash.log", {"cuda_error"}),
        ("captured/hf_trainer_v5_merged.log", {"training_completed"}),
        ("captured/torchrun_crash_kill.log", {"launcher_exit"}),
    ],
)
def test_how_they_ended(traces: Path, name: str, kinds: set[str]) -> None:
    marks = read((traces / name).read_bytes(), 997)
    assert {m.kind for m in marks if m.kind and m.kind != "rank_exit"} == kinds


def test_a_slow_gpu_shows_in_the_rate(traces: Path) -> None:
    rates = [
        m.throughput
        for m in read((traces / "logs/L17_bloom176b_throughput_drop.log").read_bytes())
        if m.throughput
    ]
    assert rates[-1] / rates[0] == pytest.approx(105.16 / 111.14, rel=1e-3)
