"""Each skill that ships is loaded by an agent, followed, and what comes of it is checked.

The models are scripts: they prove that what the text says can be done with the tools there are,
and leads where it says. Commands and forms are taken from the texts themselves.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path

import pytest

from deep_agent_mcp.harness import create_deep_agent
from deep_agent_mcp.harness.backends.composite import CompositeBackend
from deep_agent_mcp.harness.backends.directory import DirectoryBackend
from deep_agent_mcp.harness.backends.state import StateBackend
from deep_agent_mcp.harness.backends.store import StoreBackend
from deep_agent_mcp.harness.backends.transfer import download_files, upload_files
from deep_agent_mcp.harness.loop.agent import Agent
from deep_agent_mcp.harness.loop.run_executor import RunResult
from deep_agent_mcp.harness.messages.message import AIMessage, HumanMessage, ToolMessage
from deep_agent_mcp.harness.middleware.commands.shell import ShellToolMiddleware
from deep_agent_mcp.harness.models.base import ChatRequest, Delta
from deep_agent_mcp.harness.shell.policies import HostExecutionPolicy
from deep_agent_mcp.harness.skills import SkillRegistry
from deep_agent_mcp.harness.store.memory import MemoryStore
from tests.loop.models import Turns, call, says
from tests.skills import documents
from tests.skills.test_bundled_skills import REGISTRY, SOURCE

pytestmark = pytest.mark.anyio


class Roles(Turns):
    """Plays one script for each task, found by a word of its first message."""

    def __init__(self, scripts: Mapping[str, Sequence[AIMessage]]) -> None:
        super().__init__()
        self.scripts = scripts

    async def stream(self, request: ChatRequest) -> AsyncGenerator[Delta | AIMessage, None]:
        goal = next(one.text for one in request.messages if isinstance(one, HumanMessage))
        script = next(script for word, script in self.scripts.items() if word in goal)
        yield script[sum(isinstance(one, AIMessage) for one in request.messages)]


def results(result: RunResult) -> list[ToolMessage]:
    assert result.run.status == "done", result.error
    return [one for one in result.state["messages"] if isinstance(one, ToolMessage)]


def all_went_well(result: RunResult) -> list[ToolMessage]:
    messages = results(result)
    assert [one.text for one in messages if one.status == "error"] == []
    return messages


def text_of(name: str, file: str = "SKILL.md") -> str:
    return (SOURCE / name / file).read_text(encoding="utf-8")


async def data(agent: Agent, path: str, thread: str = "thr") -> str:
    (one,) = await download_files(agent, thread, [path])
    assert one.data is not None, one.message
    return one.data.decode()


# data-tables

TABLES = {
    "orders.csv": "id,customer,day,amount,zip\n1,Ann,2026-03-01,20.00,01067\n"
    "2,Bob,2026-03-01,5.50,80331\n3,ann ,2026-03-02,n/a,01067\n4,Cyd,2026-03-04,40.00,\n"
    "4,Cyd,2026-03-04,40.00,\n",
    "customers.tsv": "name\tcity\nAnn\tDresden\nBob\tMünchen\nCyd\tBonn\n",
    "app.log": "info started\nerror disk\nerror net\n",
}
TABLE = SOURCE / "data-tables/scripts/table.py"


def sessions(text: str) -> list[tuple[str, str]]:
    """Return the commands of a text, each with what it says is printed."""
    found: list[tuple[str, str]] = []
    for indent, block in re.findall(r"^( *)```console\n(.*?)^ *```$", text, re.M | re.S):
        for part in re.split(rf"^{indent}\$ ", block, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, re.sub(rf"^{indent}", "", output, flags=re.M)))
    return found


SESSIONS = sessions(text_of("data-tables"))


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    root = tmp_path / "tables"
    root.mkdir()
    for name, text in TABLES.items():
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.mark.skipif(os.name == "nt" or not shutil.which("awk"), reason="needs a POSIX shell")
@pytest.mark.parametrize(("command", "output"), SESSIONS, ids=[one[:40] for one, _ in SESSIONS])
def test_commands_about_tables_print_what_the_text_says(tables: Path, command: str, output: str):
    command = command.replace("python3 table.py", shlex.join([sys.executable, str(TABLE)]))
    done = subprocess.run(
        ["sh", "-c", command], cwd=tables, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (output, "")


# reading-documents

DOCUMENT = SOURCE / "reading-documents/scripts/document.py"
READINGS = sessions(text_of("reading-documents"))


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    root = tmp_path / "papers"
    root.mkdir()
    documents.plan(root / "plan.docx")
    documents.budget(root / "budget.xlsx")
    return root


@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize(("command", "output"), READINGS, ids=[one[:40] for one, _ in READINGS])
def test_commands_about_documents_print_what_the_text_says(papers: Path, command: str, output: str):
    command = command.replace("python3 document.py", shlex.join([sys.executable, str(DOCUMENT)]))
    done = subprocess.run(
        ["sh", "-c", command], cwd=papers, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == (output, "")


def read_document(path: Path, command: str = "text") -> tuple[int, str, str]:
    words = [sys.executable, str(DOCUMENT), command, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


def test_slides_come_in_their_order_with_their_notes(tmp_path: Path):
    code, text, _ = read_document(documents.slides(tmp_path / "talk.pptx"))
    assert code == 0
    order = ["Slide 1", "Point 1", "Slide 2", "Point 2", "Say it slowly", "Slide 3", "Point 3"]
    assert sorted(order, key=text.index) == order


def test_other_kinds_of_documents_are_text_too(tmp_path: Path):
    assert "## Head\n\nOpen words" in read_document(documents.open_text(tmp_path / "a.odt"))[1]
    sheets = read_document(documents.budget(tmp_path / "b.xlsx"))[1]
    assert sheets.startswith("# Spring\n\nItem,Euro\n") and sheets.rstrip().endswith("# Empty")
    sheet = read_document(documents.open_sheet(tmp_path / "a.ods"))[1]
    assert sheet == "## Costs\n\n| Item |  |  | Euro |\n"
    page = tmp_path / "page.html"
    page.write_text("<html><script>no()</script><h2>Head</h2><p>Some <b>words</b></p></html>")
    assert read_document(page)[1] == "## Head\n\nSome words\n"
    letter = tmp_path / "letter.eml"
    letter.write_text("From: a@example.org\nSubject: Hello\n\nThe words\n")
    assert read_document(letter)[1] == "# Hello\n\nFrom: a@example.org\n\nThe words\n"


@pytest.mark.skipif(os.name == "nt", reason="the shell needs a POSIX system")
async def test_a_question_about_a_document_is_answered_with_its_place(papers: Path):
    command = f"{shlex.quote(sys.executable)} {DOCUMENT} text plan.docx > plan.txt"
    shell = ShellToolMiddleware(papers, execution_policy=HostExecutionPolicy())
    model = Turns(
        says("", call("c1", "skill", name="reading-documents")),
        says("", call("c2", "shell", command=command)),
        says("", call("c3", "grep", pattern="Tools", path="/plan.txt", output_mode="content")),
        says("Tools cost 80 euro (plan.docx, Costs)."),
    )
    agent = create_deep_agent(
        model,
        backend=DirectoryBackend(papers),
        skills=SkillRegistry([SOURCE]),
        middleware=[shell],
    )
    loaded, _, found = all_went_well(await agent.ainvoke("What do tools cost?"))
    assert f"Folder: {DOCUMENT.parents[1]}" in loaded.text
    assert "| Tools | 80 |" in found.text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (documents.bomb, "declares entities"),
        (documents.large, "more than this program reads"),
        (lambda path: documents.archive(path, other="<x/>"), "no document that this program knows"),
    ],
)
def test_a_hostile_document_is_refused(make: Callable[[Path], Path], words: str, tmp_path: Path):
    code, text, problem = read_document(make(tmp_path / "bad.docx"))
    assert code == 1 and not text and words in problem


@pytest.mark.skipif(os.name == "nt", reason="the shell needs a POSIX system")
async def test_a_question_about_a_table_is_answered_with_the_shell(tables: Path):
    profile, query, check = [command for command, _ in SESSIONS if "table.py" in command]
    backend = DirectoryBackend(tables)

    def run(name: str, command: str) -> AIMessage:
        program = command.replace("python3 table.py", f"{shlex.quote(sys.executable)} {TABLE}")
        return says("", call(name, "shell", command=program))

    shell = ShellToolMiddleware(tables, execution_policy=HostExecutionPolicy())
    model = Turns(
        says("", call("c1", "skill", name="data-tables")),
        run("c2", profile),
        run("c3", query + " > totals.csv"),
        run("c4", check),
        says("", call("c5", "read_file", path="/totals.csv")),
        says("Bonn leads with 40.00; one order without an amount is left out."),
    )
    agent = create_deep_agent(
        model, backend=backend, skills=SkillRegistry([SOURCE]), middleware=[shell]
    )
    loaded, profiled, _, checked, read = all_went_well(await agent.ainvoke("Sum by city"))
    # The model is told where the program is.
    assert f"Folder: {TABLE.parents[1]}" in loaded.text and "scripts/table.py" in loaded.text
    assert "! amount: 4 fields are number" in profiled.text
    assert "5,4,0" in checked.text
    assert "Bonn,1,40.0\nDresden,1,20.0\nMünchen,1,5.5\n" in read.text


async def test_the_program_can_be_copied_where_commands_cannot_see_the_skill(tmp_path: Path):
    model = Turns(
        says("", call("c1", "skill", name="data-tables", file="scripts/table.py")),
        lambda request: says(
            "", call("c2", "write_file", path="/table.py", content=pasted(request))
        ),
        says("done"),
    )
    agent = create_deep_agent(
        model, backend=DirectoryBackend(tmp_path), skills=SkillRegistry([SOURCE])
    )
    all_went_well(await agent.ainvoke("Copy it"))
    assert (tmp_path / "table.py").read_text() == TABLE.read_text()


def pasted(request: ChatRequest) -> str:
    (shown,) = [one.text for one in request.messages if isinstance(one, ToolMessage)]
    assert "Next page" not in shown, "the program does not fit into one answer any more"
    return shown


def table(*arguments: str, where: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TABLE), *arguments]
    return subprocess.run(command, cwd=where, capture_output=True, encoding="utf-8", timeout=60)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("a.csv", "a;b\n1;2\n".encode("utf-16"), "a.csv: 1 rows, 2 columns"),
        ("a.csv", b"\xef\xbb\xbfa,b\r\n1,\r\n", "- b: text, 1 empty, 0 distinct"),
        ("a.csv", "größe\n1\n".encode("latin-1"), "- größe: whole"),
        ("a.csv", b'a,b\n"x\ny",1\n"p, q",2\n', "a.csv: 2 rows, 2 columns"),
        ("a.csv", b"a,b\n1\n1,2,3\n", "! row 1 has 1 fields, not 2\n! row 2 has 3 fields, not 2"),
        ("a.csv", b"a,A,,\n1,2,3,4\n", "- A_2: whole"),
        ("a.csv", b"id\n" + b"9" * 30 + b"\n007\n", "- id: code, 0 empty, 2 distinct"),
        ("a.csv", b"n\n1e5\n.5\n-2.\n", "- n: number, 0 empty, 3 distinct, -2. to 1e5"),
        ("a.csv", b"n\ne5\n.\n", "- n: text"),
        ("a.csv", b"d\n2026-01-02\n2026-01-01T10:00Z\n", "- d: date, 0 empty, 2 distinct"),
        ("a.csv", b"a,b\n", "a.csv: 0 rows, 2 columns"),
        ("a.csv", "a\nx\u2028y\x0bz\n".encode(), "a.csv: 1 rows, 1 columns"),
        ("a.tsv", b"a,b\tc\n1,2\t3\n", "- a,b: text"),
        ("a.jsonl", b'{"a":1}\n[1]\n\n{"a":[1,{}],"b":null}\n', "! line 2 is not a JSON object"),
        ("a.ndjson", b'{"a":true}\n', "- a: text, 0 empty, 1 distinct, such as 'true'"),
    ],
)
def test_tables_of_any_making_are_profiled_and_queried(
    tmp_path: Path, name: str, content: bytes, told: str
):
    (tmp_path / name).write_bytes(content)
    profiled = table("profile", name, where=tmp_path)
    assert told in profiled.stdout and not profiled.stderr
    queried = table("sql", "SELECT * FROM a", name, where=tmp_path)
    assert queried.stdout and not queried.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("profile", "no.csv"), "no.csv: No such file"),
        (("profile", "empty.csv"), "empty.csv: the file is empty"),
        (("profile", "empty.jsonl"), "no line is a JSON object"),
        (("sql", "SELECT nope FROM t", "t.csv"), "no such column: nope. Tables: t (a, b)"),
        (("sql", "SELECT", "t.csv"), "incomplete input"),
        (("sql", "SELECT 1; DROP TABLE t", "t.csv"), "one statement at a time"),
        (("sql", "SELECT 1"), "python3 table.py profile FILE"),
        ((), "python3 table.py profile FILE"),
        (("chart", "t.csv"), "python3 table.py profile FILE"),
    ],
)
def test_what_cannot_be_done_with_a_table_is_said(
    tmp_path: Path, arguments: tuple[str, ...], told: str
):
    for name, text in {"empty.csv": "", "empty.jsonl": "x\n", "t.csv": "a,b\n1,2\n"}.items():
        (tmp_path / name).write_text(text)
    done = table(*arguments, where=tmp_path)
    assert done.returncode in (1, 2) and told in done.stderr
    assert "Traceback" not in done.stderr and not done.stdout


# organising-notes


def index_of(text: str) -> dict[str, str]:
    """Read an index in the form that the skill gives."""
    form = re.search(r"^ +(- \[.*)$", text_of("organising-notes"), re.M)
    assert form is not None
    line = r"- \[([\w-]+\.md)\]\(\1\): (.+)"
    assert re.fullmatch(line, form[1])
    return dict(re.findall(rf"^{line}$", text, re.M))


async def test_notes_of_one_thread_are_found_and_corrected_in_the_next():
    def note(statement: str, day: str) -> str:
        form = text_of("organising-notes", "assets/note.md")
        fills = ["Billing export", statement, "finance asked", "Ann", day, "XML, nobody reads it"]
        for fill in fills:
            form = re.sub(r"<[^>]+>", fill, form, count=1)
        assert "<" not in form
        return form

    path, day = "/memories/billing-export.md", "2026-03-02"
    line = "- [billing-export.md](billing-export.md): how exports to finance are made\n"
    first = [
        says("", call("a1", "skill", name="organising-notes"), call("a2", "ls", path="/")),
        says(
            "",
            call("a3", "skill", name="organising-notes", file="assets/note.md"),
            call("a4", "grep", pattern="export|billing", path="/memories"),
        ),
        says(
            "",
            call("a5", "write_file", path=path, content=note("Exports are CSV.", day)),
            call("a6", "write_file", path="/memories/index.md", content=line),
        ),
        says("I have noted it."),
    ]
    second = [
        says("", call("b1", "read_file", path="/memories/index.md")),
        says("", call("b2", "read_file", path=path)),
        says(
            "",
            call("b3", "edit_file", path=path, old_string="are CSV", new_string="are TSV"),
        ),
        says("Corrected: exports are TSV."),
    ]
    memories = StoreBackend(MemoryStore(), ("memories", "ann"))
    await put_something_in(memories)
    agent = create_deep_agent(
        Roles({"Remember": first, "changed": second}),
        backend=CompositeBackend(StateBackend(), {"/memories": memories}),
        skills=SkillRegistry([SOURCE]),
    )
    listing = all_went_well(await agent.ainvoke("Remember: exports are CSV", thread_id="one"))[1]
    assert "/memories/" in listing.text
    shown = all_went_well(await agent.ainvoke("The export has changed", thread_id="two"))
    # The second thread saw nothing but the notes.
    assert (
        "how exports to finance are made" in shown[0].text and "Exports are CSV." in shown[1].text
    )
    index = index_of(await data(agent, "/memories/index.md", "two"))
    assert list(index) == ["billing-export.md"]
    kept = await data(agent, path, "two")
    assert "Exports are TSV." in kept and "CSV" not in kept and f"Ann, {day}" in kept


async def put_something_in(memories: StoreBackend) -> None:
    """Let a directory be there, as in a store that was used before."""
    agent = create_deep_agent(Turns(), backend=memories)
    assert all(one.ok for one in await upload_files(agent, "before", {"/old.md": "An old note."}))


# researching-with-subagents

SOURCES = {
    "/docs/a.md": "Intro.\nThe queue holds at most 500 jobs at once.\n",
    "/docs/b.md": "Since March a worker retries a job three times.\n",
}
CLAIM = re.compile(r'^- (.+) \| (\S+):(\d+) \| "(.+)"$', re.M)


async def test_findings_of_subagents_are_written_down_with_quotes_that_hold():
    def assigned(part: str, source: str) -> str:
        form = text_of("researching-with-subagents", "assets/assignment.md")
        fills = {
            "what to find out": f"part {part}: limits",
            "the whole question": "How are jobs limited?",
            "files or directories": source,
            "path of your own file": f"/research/jobs/{part}.md",
        }
        for begin, fill in fills.items():
            form, found = re.subn(rf"<{begin}[^>]*>", fill, form)
            assert found == 1, begin
        return form

    def finds(part: str, source: str, line: int, claim: str, quote: str) -> list[AIMessage]:
        text = f'- {claim} | {source}:{line} | "{quote}"\n'
        return [
            says("", call(f"{part}1", "read_file", path=source)),
            says(
                "", call(f"{part}2", "write_file", path=f"/research/jobs/{part}.md", content=text)
            ),
            says(f"/research/jobs/{part}.md, 1 claim: {claim}"),
        ]

    def todos(*states: str) -> dict[str, object]:
        names = ("Part one", "Part two", "Check", "Report")
        pairs = zip(names, states, strict=True)
        return {"todos": [{"content": name, "status": state} for name, state in pairs]}

    good = "The queue holds at most 500 jobs"
    made_up = "a worker retries a job five times"
    lead = [
        says("", call("m1", "skill", name="researching-with-subagents")),
        says(
            "",
            call("m2", "skill", name="researching-with-subagents", file="assets/assignment.md"),
            call("m3", "glob", pattern="/docs/*"),
            call("m4", "write_file", path="/research/jobs/question.md", content="How limited?\n"),
            call("m5", "write_todos", **todos("in_progress", "in_progress", "pending", "pending")),
        ),
        says(
            "",
            call("m6", "task", description=assigned("one", "/docs/a.md")),
            call("m7", "task", description=assigned("two", "/docs/b.md")),
        ),
        says(
            "",
            call("m8", "read_file", path="/research/jobs/one.md"),
            call("m9", "read_file", path="/research/jobs/two.md"),
        ),
        says(
            "",
            call("m10", "grep", pattern=good, path="/docs/a.md", output_mode="content"),
            call("m11", "grep", pattern=made_up, path="/docs/b.md", output_mode="content"),
        ),
        says(
            "",
            call(
                "m12", "edit_file", path="/research/jobs/two.md", old_string="- Jobs",
                new_string="- WRONG, the quote is not in the source: Jobs",
            ),
            call(
                "m13", "write_file", path="/research/jobs/report.md",
                content="Answer: at most 500 jobs wait (/docs/a.md:2), checked.\nOpen: retries.\n",
            ),
            call("m14", "write_todos", **todos(*["completed"] * 4)),
        ),
        says("At most 500 jobs wait; how often they are retried is open."),
    ]  # fmt: skip
    scripts = {
        "part one": finds("one", "/docs/a.md", 2, "Jobs are bounded", good),
        "part two": finds("two", "/docs/b.md", 1, "Jobs are retried", made_up),
        "Find out": lead,
    }
    agent = create_deep_agent(Roles(scripts), skills=SkillRegistry([SOURCE]))
    await upload_files(agent, "thr", SOURCES)
    result = await agent.ainvoke("Find out how jobs are limited", thread_id="thr")
    by_id = {one.tool_call_id: one for one in all_went_well(result)}
    assert "/docs/a.md:2" in by_id["m10"].text
    assert by_id["m11"].text.startswith("[no matching lines")
    # What is left unmarked is in its source, word for word, where it says.
    claims = CLAIM.findall(await data(agent, "/research/jobs/one.md"))
    claims += CLAIM.findall(await data(agent, "/research/jobs/two.md"))
    holds = {
        claim: quote in SOURCES[source].splitlines()[int(line) - 1]
        for claim, source, line, quote in claims
    }
    assert [claim for claim, held in holds.items() if not held] == [
        "WRONG, the quote is not in the source: Jobs are retried"
    ]
    assert len(holds) == 2
    assert "/docs/a.md:2" in await data(agent, "/research/jobs/report.md")


# writing-skills


async def test_a_skill_written_by_the_text_is_found_and_loaded_in_the_same_thread(tmp_path: Path):
    folder = tmp_path / "own"
    folder.mkdir()

    def filled(request: ChatRequest) -> AIMessage:
        shown = [one.text for one in request.messages if isinstance(one, ToolMessage)][-1]
        assert "doing-the-thing" in shown
        text = shown.replace("doing-the-thing", "releasing").replace(
            "What it does, in one sentence.", "Cuts a release."
        )
        path = "/releasing/SKILL.md"
        return says("", call("c3", "write_file", path=path, content=text))

    model = Turns(
        says("", call("c1", "skill", name="writing-skills")),
        says("", call("c2", "skill", name="writing-skills", file="assets/template.md")),
        filled,
        says("", call("c4", "skill")),
        says("", call("c5", "skill", name="releasing")),
        says("Written."),
    )
    agent = create_deep_agent(
        model, backend=DirectoryBackend(folder), skills=SkillRegistry([SOURCE, folder])
    )
    *_, listed, loaded = all_went_well(await agent.ainvoke("Write a skill for releases"))
    assert "- releasing: Cuts a release." in listed.text
    assert "What is true when the work is done" in loaded.text


# planning-with-todos


async def test_a_plan_by_the_text_is_kept_true_to_its_end():
    table = re.findall(r"^\| .*? \| (.+?) \|$", text_of("planning-with-todos"), re.M)
    steps = [one for one in table if one != "Good" and not one.startswith("-")]
    assert 3 <= len(steps) <= 9 and steps[0].startswith("Reproduce")

    def plan(at: int) -> list[dict[str, str]]:
        states = ["completed"] * at + ["in_progress"] * (at < len(steps))
        states += ["pending"] * (len(steps) - len(states))
        return [
            {"id": str(number), "content": step, "status": state}
            for number, (step, state) in enumerate(zip(steps, states, strict=True))
        ]

    turns = [says("", call("s", "skill", name="planning-with-todos"))]
    turns.append(says("", call("t0", "write_todos", todos=plan(0))))
    for at in range(1, len(steps) + 1):
        changed = [one for one, old in zip(plan(at), plan(at - 1), strict=True) if one != old]
        turns.append(says("", call(f"t{at}", "write_todos", todos=changed, merge=True)))
    agent = create_deep_agent(Turns(*turns, says("Done.")), skills=SkillRegistry([SOURCE]))
    result = await agent.ainvoke("Orders by date; fix the export", thread_id="thr")
    assert len(all_went_well(result)) == len(turns)
    todos = (await agent.get_state("thr")).values["todos"]
    assert [one.content for one in todos] == steps
    assert {one.status for one in todos} == {"completed"}


# reviewing-changes


async def test_a_review_by_the_text_reads_callers_and_reports_a_place_that_is_there(tmp_path: Path):
    (tmp_path / "pay.py").write_text("def refund(order):\n    book(order)\n    book(order)\n")
    (tmp_path / "app.py").write_text("from pay import refund\nrefund(7)\n")
    report = "[blocker] /pay.py:3  Refund is booked twice\nChecked: callers."
    model = Turns(
        says("", call("c1", "skill", name="reviewing-changes")),
        says(
            "",
            call("c2", "skill", name="reviewing-changes", file="references/checklist.md"),
            call("c3", "read_file", path="/pay.py"),
            call("c4", "grep", pattern=r"refund\(", output_mode="content"),
        ),
        says(report),
    )
    agent = create_deep_agent(
        model, backend=DirectoryBackend(tmp_path), skills=SkillRegistry([SOURCE])
    )
    result = await agent.ainvoke("Review the refund")
    _, checklist, read, callers = all_went_well(result)
    assert checklist.text.count("\n- ") > 10 or checklist.text.count("[ ]") > 10
    assert "/app.py:2" in callers.text
    form = re.search(r"^    (\[blocker\] \S+:\d+  .+)$", text_of("reviewing-changes"), re.M)
    assert form is not None
    answer = re.match(r"\[blocker\] /(\S+):(\d+)  (.+)", result.run.answer or "")
    assert answer is not None
    line = (tmp_path / answer[1]).read_text().splitlines()[int(answer[2]) - 1]
    assert line.strip() == "book(order)" and line in read.text


# release-notes


async def test_release_notes_by_the_text_keep_the_form_that_there_is(tmp_path: Path):
    old = "# Changelog\n\n## [1.0] - 2026-01-01\n\n### Fixed\n\n- It starts. (#1)\n"
    (tmp_path / "CHANGELOG.md").write_text(old)
    (tmp_path / "commits.txt").write_text("feat!: drop --legacy\nrefactor: split utils\n")
    (tmp_path / "guide.md").write_text("Use --legacy for old files.\n")
    entry = "## [2.0] - 2026-06-01\n\n### Breaking\n\n- `--legacy` is gone. Remove it.\n\n"
    head = "## [1.0] - 2026-01-01"
    model = Turns(
        says("", call("c1", "skill", name="release-notes")),
        says(
            "",
            call("c2", "skill", name="release-notes", file="assets/entry.md"),
            call("c3", "read_file", path="/CHANGELOG.md"),
            call("c4", "grep", pattern="--legacy", output_mode="content"),
        ),
        says(
            "",
            call(
                "c5",
                "edit_file",
                path="/CHANGELOG.md",
                old_string=head,
                new_string=entry + head,
            ),
        ),
        says("2.0, as an option is gone. guide.md still names it."),
    )
    agent = create_deep_agent(
        model, backend=DirectoryBackend(tmp_path), skills=SkillRegistry([SOURCE])
    )
    _, form, _, uses, _ = all_went_well(await agent.ainvoke("Write the notes of 2.0"))
    headings = re.findall(r"^### (\w+)$", form.text, re.M)
    assert {"Breaking", "Added", "Changed", "Fixed", "Security"} <= set(headings)
    assert all(f"*{one}*" in text_of("release-notes") for one in headings)
    assert "/guide.md:1" in uses.text
    assert (tmp_path / "CHANGELOG.md").read_text().index("[2.0]") < old.index("[1.0]") + 5


# writing-tests


@pytest.mark.skipif(os.name == "nt", reason="the shell needs a POSIX system")
async def test_a_test_by_the_text_is_seen_red_before_it_is_believed(tmp_path: Path):
    (tmp_path / "shop.py").write_text("def may_refund(days):\n    return days <= 30\n")
    test = (
        "import unittest\nfrom shop import may_refund\n\n\nclass Refunds(unittest.TestCase):\n"
        "    def test_a_refund_is_refused_after_30_days(self):\n"
        "        self.assertTrue(may_refund(30))\n        self.assertFalse(may_refund(31))\n"
    )

    def run(name: str) -> AIMessage:
        command = f"{shlex.quote(sys.executable)} -B -m unittest test_shop 2>&1 | tail -n 1"
        return says("", call(name, "shell", command=command))

    def swap(name: str, old: str, new: str) -> AIMessage:
        edit = {"path": "/shop.py", "old_string": old, "new_string": new}
        return says("", call(name, "edit_file", **edit))

    model = Turns(
        says("", call("c1", "skill", name="writing-tests")),
        says("", call("c2", "read_file", path="/shop.py")),
        says("", call("c3", "write_file", path="/test_shop.py", content=test)),
        run("c4"),
        swap("c5", "<= 30", "<= 60"),
        run("c6"),
        swap("c7", "<= 60", "<= 30"),
        run("c8"),
        says("Added; red when the bound is moved, green as it is."),
    )
    shell = ShellToolMiddleware(tmp_path, execution_policy=HostExecutionPolicy())
    agent = create_deep_agent(
        model,
        backend=DirectoryBackend(tmp_path),
        skills=SkillRegistry([SOURCE]),
        middleware=[shell],
    )
    done = all_went_well(await agent.ainvoke("Test the refunds"))
    green, red, again = (one.text for one in done if one.name == "shell")
    assert "OK" in green and "FAILED" in red and "OK" in again
    assert "break the\n   line it protects" in text_of("writing-tests")


# migrating-code


async def test_a_migration_by_the_text_counts_changes_and_counts_again(tmp_path: Path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.py").write_text("from old import Client\nClient(retries=3)\n")
    table = re.search(r"^```text\n(pattern .*?)^```$", text_of("migrating-code"), re.M | re.S)
    assert table is not None
    plan = table[1].splitlines()[0] + "\nfrom old import Client   2   from new import connect\n"

    def edits(number: int, old: str, new: str) -> AIMessage:
        files = ("/one.py", "/two.py")
        return says(
            "",
            *(
                call(f"e{number}{at}", "edit_file", path=path, old_string=old, new_string=new)
                for at, path in enumerate(files)
            ),
        )

    model = Turns(
        says("", call("c1", "skill", name="migrating-code")),
        says("", call("c2", "grep", pattern="Client", output_mode="content")),
        says(
            "",
            call("c3", "write_file", path="/migration.txt", content=plan),
            call("c4", "read_file", path="/one.py"),
            call("c5", "read_file", path="/two.py"),
        ),
        edits(1, "from old import Client", "from new import connect"),
        edits(2, "Client(retries=3)", "connect(retry=3)"),
        says("", call("c6", "grep", pattern=r"\bClient\(", output_mode="content")),
        says("Both places moved; see /migration.txt."),
    )
    agent = create_deep_agent(
        model, backend=DirectoryBackend(tmp_path), skills=SkillRegistry([SOURCE])
    )
    done = all_went_well(await agent.ainvoke("Move to the new client"))
    before, after = (one.text for one in done if one.name == "grep")
    assert before.count("import Client") == 2 and ".py" not in after
    moved = "from new import connect\nconnect(retry=3)\n"
    assert {(tmp_path / f"{name}.py").read_text() for name in ("one", "two")} == {moved}


def test_every_skill_that_ships_is_at_work_here():
    source = Path(__file__).read_text(encoding="utf-8")
    for name in REGISTRY.skills:
        assert f"# {name}\n" in source and f'name="{name}"' in source
