"""The peer of `bench_storage`: LangGraph with its PostgreSQL checkpointer. Runs where that is installed, as a program.

``python -m tests.benchmarks.langgraph_peer DSN TURNS async|exit`` runs the turns of `turn_shape` in an agent of a model
node and a tool node, and prints one JSON line: the milliseconds of each turn. Imports nothing of Rejoinder.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.benchmarks.turn_shape import turn_texts


async def model(state: MessagesState) -> dict[str, Any]:
    """Call the tool first, then reply."""
    messages = state["messages"]
    turn = sum(isinstance(message, HumanMessage) for message in messages) - 1
    texts = turn_texts(turn)
    if isinstance(messages[-1], HumanMessage):
        call = {"name": "look_up", "args": {"query": texts.argument}, "id": f"call_{turn}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage(texts.reply)]}


async def tool(state: MessagesState) -> dict[str, Any]:
    """Return what the newest call asks for."""
    call = state["messages"][-1].tool_calls[0]
    return {"messages": [ToolMessage(turn_texts(int(call["id"][5:])).result, tool_call_id=call["id"])]}


def next_node(state: MessagesState) -> str:
    """Go to the tool if it was called."""
    return "tool" if state["messages"][-1].tool_calls else END


async def main(dsn: str, turns: int, durability: Any) -> None:
    """Run the turns of one conversation."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tool", tool)
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", next_node, ["tool", END])
    graph.add_edge("tool", "model")
    took = []
    async with AsyncPostgresSaver.from_conn_string(dsn) as checkpointer:
        await checkpointer.setup()
        agent = graph.compile(checkpointer=checkpointer)
        for turn in range(turns):
            said = HumanMessage(turn_texts(turn).message)
            began = time.perf_counter()
            await agent.ainvoke({"messages": [said]}, {"configurable": {"thread_id": "one"}}, durability=durability)
            took.append((time.perf_counter() - began) * 1000)
    print(json.dumps(took))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
