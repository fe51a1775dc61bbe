"""Lines that say what a run is doing besides training: checkpoints, evaluation, start-up, the end. Decides nothing about steps."""

import re

from watchtower.trainlog.marks import Mark, Phase

_SAVED = re.compile(
    r"(?:successfully saved checkpoint (?:from|at) iteration\s{1,12}(\d{1,10})"
    r"|Finished saving the checkpoint|Saving checkpoint took [\d.]{1,12} sec"
    r"|Async checkpoint save for step (\d{1,10}).{0,80}finali[sz]ed"
    r"|scheduled an async checkpoint save at iteration\s{1,12}(\d{1,10})"
    r"|\bcheckpoint saved\b(?:.{0,40}?\bstep[ :=]{1,2}(\d{1,10})(?!\d))?)"
)
_SAVING = re.compile(
    r"(?:Saving model checkpoint to|\bsaving checkpoint (?:at iteration|to)\b|Saving the checkpoint"
    r"|Global Checkpoint Save|Saving checkpoint\. This may take some time|\bsaving checkpoint\b)"
)
_EVALUATING = re.compile(
    r"(?:\*{5} Running (?:Evaluation|Prediction)|Running evaluation step|Validation: iteration|Evaluation start time"
    r"|\*{5} Evaluating)"
)
_TRAINING_AGAIN = re.compile(r"(?:validation loss at |eval metrics after step|\bvalidate step:)")
_STARTING = re.compile(
    r"(?:compiling and loading fused kernels|Skipping (?:the )?first .{0,40}batches|will skip .{0,40}batches"
    r"|Resuming (?:training )?from|Continuing training from global step)"
)
_COMPLETED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(r"Training completed\. Do not forget to share your model"),
        "HF Trainer says that training completed",
    ),
    (re.compile(r"Training completed! Saving trained model to"), "axolotl says that training completed"),
    (re.compile(r"\[after training is done\] datetime:"), "Megatron says that training is done"),
    (re.compile(r"\[exiting program at iteration\s{1,12}\d{1,10}\] datetime"), "Megatron exits as planned"),
    (re.compile(r"- INFO - Training completed\s{0,4}$"), "torchtitan says that training completed"),
    (
        re.compile(r"`Trainer\.fit` stopped: `max_(?:steps|epochs)=\d{1,10}` reached"),
        "Lightning says that its last step is reached",
    ),
    (re.compile(r"\[INFO\b.{0,120}\*{5} train metrics \*{5}"), "HF Trainer printed its final metrics"),
)


def read(text: str) -> Mark | None:
    """A checkpoint's begin (a phase) or end (an event), an evaluation, a start-up step, or the end of training, else None."""
    if found := _SAVED.search(text):
        step = next((int(group) for group in found.groups() if group), None)
        said = "checkpoint saved" if step is None else f"checkpoint saved at step {step}"
        return Mark(kind="checkpoint_saved", code=step, phase="train", text=said)
    for words, phase in _PHASES:
        if words.search(text):
            return Mark(phase=phase)
    for words, said in _COMPLETED:
        if words.search(text):
            return Mark(kind="training_completed", phase="finishing", text=said)
    return None


_PHASES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (_SAVING, "checkpoint"),
    (_EVALUATING, "eval"),
    (_TRAINING_AGAIN, "train"),
    (_STARTING, "init"),
)
