"""`watchtower replay`: judges a recording in virtual time. Reads files and prints; tells nobody, polls nobody."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


def replay(
    recording: Annotated[
        Path, typer.Argument(help="A recording: .jsonl, .jsonl.gz or .jsonl.zst.", show_default=False)
    ],
    config: Annotated[
        Path | None,
        typer.Option(
            help="Judge by the [judge], [[runs]] and [alerts] of this file; agents and sinks in it are ignored."
        ),
    ] = None,
    output: Annotated[
        Format,
        typer.Option(
            "--format", help="json: one record a line, as docs/formats.md section 4 says; text: for people."
        ),
    ] = Format.TEXT,
) -> None:
    """Play a recording through the judge, in virtual time: what would have been said and paged, and when.

    An hour of sixteen GPUs takes about a second. Nobody is told anything. Exit status 0 when the recording was read to its
    end, 2 when the recording or the configuration is not valid; a last line that is cut short is reported on standard
    error, and the rest still counts.
    """
    from watchtower.config import ConfigError, judge_settings, load
    from watchtower.judge.settings import JudgeSettings
    from watchtower.recording.jsonl import Recording, RecordingError
    from watchtower.replay.play import play
    from watchtower.replay.report import json_lines, text_lines

    source = Recording(recording)
    said = False
    try:
        settings = judge_settings(load(config)) if config is not None else JudgeSettings()
        for step in play(source, settings):
            for trouble in step.troubles:
                print(f"judging {trouble.run_id} failed:\n{trouble.trace}", file=sys.stderr)
            if output is Format.JSON:
                for record in json_lines(step):
                    sys.stdout.buffer.write(record + b"\n")
            else:
                for line in text_lines(step):
                    print(line)
                    said = True
    except BrokenPipeError:
        sys.stderr.close()
        raise typer.Exit(0) from None
    except (RecordingError, ConfigError) as error:
        print(error, file=sys.stderr)
        raise typer.Exit(2) from None
    if output is Format.TEXT and not said:
        print("no training run is in this recording")
    if source.truncated:
        print(source.truncated, file=sys.stderr)
