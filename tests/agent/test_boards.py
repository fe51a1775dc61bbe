from watchtower import wire
from watchtower.agent.boards import BoardTable, while_unread
from watchtower.agent.node.side import GpuProcess
from watchtower.agent.nvml.protocol import Board, Sweep


def board(uuid: str = "GPU-a", index: int = 0, **more: object) -> Board:
    return Board(**{"uuid": uuid, "index": index, "power_w": 900.0, **more})  # type: ignore[arg-type]


def sweep(*boards: Board) -> Sweep:
    return Sweep(sweep=1, boards=boards)


def test_a_board_that_a_new_sampler_does_not_list_any_more_is_lost_and_holds_no_process() -> None:
    table = BoardTable()
    table.apply(sweep(board(), board("GPU-b", 1, processes=((7, 5.0),))), 0)
    table.apply(sweep(board()), 1)
    assert [(gpu.uuid, gpu.state) for gpu in table.gpus()] == [("GPU-a", "ok"), ("GPU-b", "lost")]
    assert table.processes() == ()


def test_a_board_without_a_name_is_the_one_known_at_its_index() -> None:
    table = BoardTable()
    table.apply(sweep(board(model="B300", pci_bus_id="p")), 0)
    table.apply(sweep(board("unknown-index-0", state="lost", power_w=None)), 1)
    assert [(gpu.uuid, gpu.state, gpu.model) for gpu in table.gpus()] == [("GPU-a", "lost", "B300")]


def test_a_process_list_that_was_not_read_leaves_the_last_one() -> None:
    table = BoardTable()
    table.apply(sweep(board(processes=((7, 5.0),))), 0)
    table.apply(sweep(board(processes=None)), 1)
    assert table.processes() == (GpuProcess(7, "GPU-a", 5.0),)
    table.apply(sweep(board(processes=())), 2)
    assert table.processes() == ()


def test_only_new_memory_errors_are_an_event() -> None:
    table = BoardTable()
    counts = [5, None, 5, 7, 2, 3]
    events = [e for n in counts for e in table.apply(sweep(board(ecc_uncorrected=n)), 0)]
    assert [(e.kind, e.gpu_uuid, e.code) for e in events] == [
        ("ecc_uncorrected", "GPU-a", 2),
        ("ecc_uncorrected", "GPU-a", 1),
    ]


def test_what_the_driver_asks_for_is_told_when_it_changes() -> None:
    table = BoardTable()
    events = [e for n in (0, 1, None, 1, 0) for e in table.apply(sweep(board(recovery_action=n)), 0)]
    assert [(e.code, e.text) for e in events] == [
        (1, "the driver asks for: GPU reset"),
        (0, "the driver asks for: nothing any more"),
    ]


def test_while_nvml_is_not_ok_no_board_is_readable_and_a_lost_one_stays_lost() -> None:
    gpus = (wire.Gpu("a", 0, state="ok"), wire.Gpu("b", 1, state="lost"))
    told = while_unread(gpus, wire.Nvml("absent", detail="driver_not_loaded"))
    assert [(gpu.state, gpu.detail) for gpu in told] == [("unreadable", "driver_not_loaded"), ("lost", None)]
    assert while_unread(gpus, wire.Nvml("ok")) == gpus
