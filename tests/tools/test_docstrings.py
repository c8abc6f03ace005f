"""Descriptions of parameters come from the docstring, in each of the common styles."""

from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from deep_agent_mcp.harness.tools.schemas import read_docstring
from deep_agent_mcp.harness.tools.tool import Tool, ToolRuntime, tool
from tests.tools.calls import described, properties


def google(query: str, limit: int, runtime: ToolRuntime, more: str = "") -> None:
    """Search the web.

    Use it for: news.

    Args:
        query (str): What to look for,
            over two lines.
        limit: How many: at most 10.
        runtime: Not for the model.

    Returns:
        Hits.

    Don't use it twice.
    """


def numpy(query: str, limit: int, offset: int) -> None:
    """Search the web.

    Parameters
    ----------
    query : str
        What to look for,
        over two lines.
    limit, offset : int, optional
        Counts.

    Returns
    -------
    list
        Hits.
    """


def rest(query: str, limit: int) -> None:
    """Search the web.

    :param query: What to look for,
        over two lines.
    :type query: str
    :param int limit: How many.
    :returns: Hits.
    """


def test_google_style_and_the_rest_of_the_text_stays():
    assert described(google) == {
        "query": "What to look for, over two lines.",
        "limit": "How many: at most 10.",
    }
    assert tool(google).description == (
        "Search the web.\n\nUse it for: news.\n\nReturns:\n    Hits.\n\nDon't use it twice."
    )


def test_numpy_style():
    assert described(numpy) == {
        "query": "What to look for, over two lines.",
        "limit": "Counts.",
        "offset": "Counts.",
    }
    assert tool(numpy).description == ("Search the web.\n\nReturns\n-------\nlist\n    Hits.")


def test_rest_style():
    assert described(rest) == {
        "query": "What to look for, over two lines.",
        "limit": "How many.",
    }
    assert tool(rest).description == "Search the web.\n\n:returns: Hits."


@pytest.mark.parametrize(
    "text",
    [
        "",
        "One line.",
        "Parameters: none that matter.",
        "Args:\n\nare not indented here.",
        "Note: a colon.\n\n    indented: code\n",
        "Parameters\nwithout a rule",
    ],
)
def test_text_without_sections_stays_as_it_is(text):
    read = read_docstring(text)
    assert (read.text, read.parameters) == (text.strip(), {})


def test_prose_behind_a_numpy_section_is_kept():
    text = "Do.\n\nParameters\n----------\na\n    One.\n\nCall it once, please."
    assert read_docstring(text).text == "Do.\n\nCall it once, please."


def test_a_description_in_the_annotation_wins():
    def find(query: Annotated[str, Field(description="From the annotation.")], limit: int) -> None:
        """Find.

        Args:
            query: From the docstring.
            limit: How many.
        """

    assert described(find) == {"query": "From the annotation.", "limit": "How many."}


class Place(BaseModel):
    """A place."""

    name: str


def test_a_parameters_description_goes_before_that_of_its_type():
    def go(place: Place, other: Place) -> Any:
        """Go.

        Args:
            place: Where to go.
        """

    assert described(go) == {"place": "Where to go.", "other": "A place."}


def test_a_models_docstring_describes_tool_and_fields():
    class FindPlace(BaseModel):
        """Find a place.

        Attributes:
            name: What it is called.
        """

        name: str

    made = Tool.from_model(FindPlace, lambda place: place.name)
    assert made.description == "Find a place."
    assert properties(made)["name"]["description"] == "What it is called."
    assert "description" not in made.parameters


def test_a_given_description_replaces_the_docstring():
    assert tool(google, description="Other.").description == "Other."
    assert "query" in described(google)
