"""Which lines are steps, and which only look like it."""

import pytest

from tests.trainlog.samples import bar, megatron, read, steps


def test_a_bar_gives_step_and_total_and_never_takes_its_percent_for_the_truth() -> None:
    marks = read(bar(0, 3857, elapsed="00:00") + bar(3849, 3857) + bar(3850, 3857))
    assert steps(marks) == [0, 3849, 3850]
    assert {mark.total for mark in marks} == {3857}
    assert {mark.phase for mark in marks if mark.step} == {"train"}


def test_the_newest_bar_is_read_before_its_line_ends() -> None:
    assert steps(read(bar(41, 100))) == [41]


def test_a_bar_that_is_printed_again_is_not_progress() -> None:
    assert steps(read(bar(1000, 2000) + bar(1000, 2000, elapsed="20:00") * 5)) == [1000]


def test_the_slower_of_two_ranks_in_one_file_does_not_take_the_run_back() -> None:
    assert steps(read(bar(6, 16) + bar(5, 16) + bar(7, 16))) == [6, 7]


def test_a_bar_made_anew_takes_the_run_back() -> None:
    assert steps(read(bar(40, 100) + bar(0, 100, elapsed="00:00") + bar(1, 100, elapsed="00:05"))) == [
        40,
        0,
        1,
    ]


@pytest.mark.parametrize("total", [2, 5000])
def test_an_evaluation_bar_in_the_middle_of_training_is_not_progress(total: int) -> None:
    log = bar(40, 100) + bar(1, total) + bar(total, total) + bar(41, 100)
    assert steps(read(log)) == [40, 41]


def test_a_short_bar_after_the_last_step_is_not_progress() -> None:
    assert steps(read(bar(41, 42) + bar(42, 42) + bar(0, 2, elapsed="00:00") + bar(2, 2))) == [41, 42]


def test_the_bar_beside_which_a_loss_is_printed_is_the_training_bar() -> None:
    long_before = bar(0, 9000, elapsed="00:00") + bar(9000, 9000)
    log = long_before + bar(1, 50) + "\r{'loss': '3.9', 'grad_norm': '0.5', 'epoch': '0.4'}\n" + bar(2, 50)
    assert steps(read(log))[-1] == 2


@pytest.mark.parametrize(
    ("description", "phase"),
    [
        ("Map (num_proc=8)", "init"),
        ("Tokenizing train dataset", "init"),
        ("Loading checkpoint shards", "init"),
        ("Skipping the first batches", "init"),
        ("Writing model shards", "checkpoint"),
        ("Validation DataLoader 0", "eval"),
        ("Evaluating", "eval"),
    ],
)
def test_bars_of_other_work_are_phases(description: str, phase: str) -> None:
    marks = read(bar(3, 4, description=description))
    assert [(mark.step, mark.phase) for mark in marks] == [(None, phase)]


def test_a_bar_in_examples_is_not_steps() -> None:
    assert read(bar(200, 200, description="Packing dataset", unit="examples"))[0].step is None
    assert read(bar(200, 200, unit="examples")) == []


def test_rounded_numbers_are_not_steps() -> None:
    assert read("\r 37%|###   | 1.2M/3.3M [01:01<01:45, 19.7kit/s]\n") == []


def test_a_loss_inside_the_description_does_not_make_it_another_bar() -> None:
    log = bar(40, 100, description="loss 2.31") + bar(1, 3) + bar(41, 100, description="loss 2.29")
    assert steps(read(log)) == [40, 41]


def test_epoch_bars_count_on_over_epochs() -> None:
    log = "".join(bar(n, 10, description=f"Epoch {epoch}") for epoch in (1, 2) for n in (5, 10))
    assert steps(read(log)) == [5, 10, 15, 20]


def test_a_megatron_line_gives_samples_per_second_of_the_run() -> None:
    mark = read(megatron(120))[0]
    assert (mark.step, mark.total, mark.throughput, mark.unit, mark.scope) == (
        120,
        9000,
        320.0,
        "samples/s",
        "run",
    )


def test_a_nemo_line_counts_from_zero() -> None:
    line = (
        "Training epoch 0, iteration 799/4799 | lr: 0.0003 | global_batch_size: 128 | global_step: 799 |"
        " reduced_train_loss: 2.31 | train_step_timing in s: 1.6\n"
    )
    mark = read(line)[0]
    assert (mark.step, mark.total, mark.throughput, mark.unit) == (800, 4800, 0.625, "steps/s")


def test_nanogpt_evaluations_are_not_steps() -> None:
    log = (
        "max_iters = 600  # short\ntokens per iteration will be: 1,000\nstep 250: train loss 3.1, val loss 3.2\n"
        "iter 250: loss 3.41, time 500.00ms, mfu 38.12%\n"
    )
    marks = read(log)
    assert [(m.step, m.phase) for m in marks] == [(None, "eval"), (250, "train")]
    assert (marks[-1].total, marks[-1].throughput, marks[-1].unit) == (600, 2000.0, "tokens/s")


@pytest.mark.parametrize(
    ("line", "step", "total"),
    [
        ("step 5/100", 5, 100),
        ("[12:00:01] step: 5 / 100 loss 3.2", 5, 100),
        ("Global step 5 of 100", 5, 100),
        ("step:5/100 train_time:254.6s", 5, 100),
        ("s:250 tel:6.3097", 250, None),
        ("step:12 - actor/pg_loss:0.013", 12, None),
        ("Step 101 | loss:0.139 lr:2e-05", 101, None),
    ],
)
def test_a_plain_counter_is_a_step(line: str, step: int, total: int | None) -> None:
    mark = read(line + "\n")[0]
    assert (mark.step, mark.total) == (step, total)


@pytest.mark.parametrize(
    "line",
    [
        "eval step 5/100",
        "Validation step: 5/100",
        "loading step 3/9",
        "footstep 5/100",
        "step 7/3",
        "step 1250: train loss 3.2, val loss 3.3",
        "date 2031/02/03",
        "see https://example.org/step/4/5",
    ],
)
def test_lines_that_only_look_like_a_counter_are_none(line: str) -> None:
    assert steps(read(line + "\n")) == []


def test_a_trainers_own_line_wins_over_a_bar_that_differs_by_one() -> None:
    assert steps(read(bar(119, 9000) + megatron(120) + bar(121, 9000) + megatron(121))) == [119, 120, 121]


def test_deepspeeds_rare_engine_line_does_not_silence_the_bar() -> None:
    engine = "[2031-02-03 04:05:06,789] [INFO] [logging.py:107:log_dist] [Rank 0] step=40, skipped=2, lr=[1e-05], mom=[0]\n"
    assert steps(read(bar(40, 100) + "\n" + engine + bar(41, 100))) == [40, 41]


def test_rates_of_one_gpu_say_so() -> None:
    line = "step: 40  loss:  5.43210  grad_norm:  1.2034  memory: 61.20GiB(77.21%)  tps: 7,812  tflops: 412.31  mfu: 41.69%\n"
    mark = read("\x1b[31m" + line)[0]
    assert (mark.step, mark.throughput, mark.unit, mark.scope) == (40, 7812.0, "tokens/s", "gpu")


def test_a_step_without_end_is_a_number_that_happened_to_stand_there() -> None:
    assert steps(read("step 9999999999/9999999999\n")) == []


def test_a_bar_whose_percent_contradicts_its_numbers_was_spliced() -> None:
    assert steps(read("\r  4%|#         | 3850/3857 [11:06:40<01:12, 10.39s/it]\n")) == []


def test_a_source_that_says_zero_at_start_and_nothing_more_does_not_silence_the_others() -> None:
    zero = "step: 0  loss:  5.4  grad_norm:  1.2  memory: 61.20GiB(77.21%)  tps: 7,812  tflops: 412.31  mfu: 41.69%\n"
    assert steps(read(zero + bar(1, 100))) == [0, 1]
