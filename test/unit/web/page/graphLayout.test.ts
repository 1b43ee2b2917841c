import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { DependencyNode } from "../../../../src/tasks/queries/dependencyGraph.js";
import { layoutGraph, maxPerColumn, type Graph, type Layout } from "../../../../src/web/page/graphLayout.js";

type Edges = readonly (readonly [number, number])[];

const nodeOf = (id: number | string, rest: Partial<DependencyNode> = {}): DependencyNode => ({
  id: String(id),
  state: "PLAN",
  group: "",
  upon: null,
  plan: null,
  input: null,
  error: null,
  predecessors: 0,
  waitsFor: 0,
  morePredecessors: 0,
  moreDependents: 0,
  ...rest,
});

/** Builds a graph of the tasks in the edges, which lead from the predecessor to the task that waits. */
const graphOf = (edges: Edges, rest: Readonly<Record<number, Partial<DependencyNode>>> = {}): Graph => ({
  nodes: [...new Set(edges.flat())].map((id) => nodeOf(id, rest[id])),
  edges: edges.map(([before, task]) => ({ predecessor: String(before), task: String(task), status: "waits" })),
});

const fan = (size: number): Edges => Array.from({ length: size }, (_, index) => [1, index + 2] as const);
const fanIn = (size: number): Edges => Array.from({ length: size }, (_, index) => [index + 1, size + 1] as const);
const chain = (size: number): Edges => Array.from({ length: size - 1 }, (_, index) => [index + 1, index + 2] as const);

/** Returns a random graph in which everything is connected with task 50. The same seed gives the same graph. */
function randomEdges(seed: number): Edges {
  let state = seed;
  const random = (limit: number): number => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return Math.floor((state / 2 ** 31) * limit);
  };
  return Array.from({ length: 10 + random(60) }, () => {
    const before = 40 + random(19);
    return [before, before + 1 + random(4)] as const;
  });
}

const ids = ({ boxes }: Layout): string[] => boxes.map((box) => box.node.id);
const boxOf = ({ boxes }: Layout, id: number): { x: number; y: number; height: number } => {
  const box = boxes.find(({ node }) => node.id === String(id));
  assert.ok(box !== undefined, `no box of task ${id}`);
  return box;
};

/** Asserts what holds for each layout. */
function assertReadable(layout: Layout): void {
  const all = [...layout.boxes.map((box) => ({ ...box, key: box.node.id })), ...layout.more];
  const byKey = new Map(all.map((box) => [box.key, box]));
  for (const [index, a] of all.entries()) {
    assert.ok(a.x >= 0 && a.y >= 0 && a.x + a.width <= layout.width && a.y + a.height <= layout.height, a.key);
    for (const b of all.slice(index + 1)) {
      const apart = a.x + a.width <= b.x || b.x + b.width <= a.x || a.y + a.height <= b.y || b.y + b.height <= a.y;
      assert.ok(apart, `${a.key} and ${b.key} overlap`);
    }
  }
  for (const line of layout.lines) {
    const [from, to] = [byKey.get(line.from), byKey.get(line.to)];
    assert.ok(from !== undefined && to !== undefined, `${line.from} to ${line.to}`);
    assert.ok(from.x + from.width < to.x, `${line.from} is to the left of ${line.to}`);
    assert.ok(line.path.startsWith(`M${from.x + from.width} `), "it begins at the right side");
    assert.ok(line.x === to.x && Math.abs(line.y - (to.y + to.height / 2)) < 1, "it ends at the left side");
    // A line passes a column on a horizontal part, which must not cross any box.
    for (const [, y = "", x = ""] of line.path.matchAll(/ ([\d.]+)H([\d.]+)/g)) {
      for (const box of all.filter((each) => each.x + each.width === Number(x))) {
        assert.ok(Number(y) < box.y || Number(y) > box.y + box.height, `${line.from} to ${line.to} crosses ${box.key}`);
      }
    }
  }
}

void describe("the layout of dependencies", () => {
  void test("a chain is a straight line from left to right", () => {
    const layout = layoutGraph(graphOf(chain(3)), "2");
    assertReadable(layout);
    assert.deepEqual(ids(layout), ["1", "2", "3"]);
    assert.equal(new Set(layout.boxes.map((box) => box.y)).size, 1);
    assert.deepEqual(
      layout.lines.map(({ from, to }) => [from, to]),
      [
        ["1", "2"],
        ["2", "3"],
      ],
    );
  });

  void test("what a task waits for is to the left, and what waits for it to the right, in the order of ids", () => {
    const layout = layoutGraph(graphOf([...fanIn(4), [5, 9], [5, 10], [5, 7]]), "5");
    assertReadable(layout);
    assert.deepEqual(ids(layout), ["1", "2", "3", "4", "5", "7", "9", "10"]);
    const middle = boxOf(layout, 5);
    for (const side of [
      [1, 4],
      [7, 10],
    ] as const) {
      const [first, last] = side.map((id) => boxOf(layout, id).y);
      assert.equal(((first ?? 0) + (last ?? 0)) / 2, middle.y, "the task is in the middle of its fan");
    }
  });

  void test("a line over several columns passes the boxes between", () => {
    const layout = layoutGraph(graphOf([...chain(4), [1, 4], [2, 4], [1, 3]]), "3");
    assertReadable(layout);
    assert.equal(layout.lines.length, 6);
    assert.equal(layout.lines.filter(({ path }) => path.includes("H")).length, 3);
  });

  void test("a task without dependencies is alone, and tasks that are not connected are not drawn", () => {
    const alone = layoutGraph({ nodes: [nodeOf(7)], edges: [] }, "7");
    assert.deepEqual(ids(alone), ["7"]);
    assert.deepEqual(alone.lines, []);
    assert.deepEqual(ids(layoutGraph(graphOf([...chain(3), [10, 11]]), "2")), ["1", "2", "3"]);
  });

  void test("ids above 2^53 are told apart", () => {
    const [a, b, c] = ["9223372036854775805", "9223372036854775806", "9223372036854775807"] as const;
    const edges: Graph["edges"] = [
      { predecessor: b, task: c, status: "waits" },
      { predecessor: a, task: b, status: "waits" },
    ];
    const layout = layoutGraph({ nodes: [c, b, a].map((id) => nodeOf(id)), edges }, b);
    assertReadable(layout);
    assert.deepEqual(ids(layout), [a, b, c]);
  });

  void test("edges that no INSERT could have written do not hang", () => {
    const layout = layoutGraph(
      graphOf([
        [1, 2],
        [2, 1],
        [2, 2],
        [2, 3],
      ]),
      "2",
    );
    assertReadable(layout);
    assert.deepEqual(ids(layout), ["1", "2", "3"]);
  });

  for (const [size, shown, more] of [
    [maxPerColumn, maxPerColumn, null],
    [maxPerColumn + 1, maxPerColumn + 1, null],
    [maxPerColumn + 2, maxPerColumn, 2],
    [100, maxPerColumn, 100 - maxPerColumn],
  ] as const) {
    void test(`of a fan of ${size}, ${shown} tasks have boxes`, () => {
      for (const [edges, middle] of [
        [fan(size), "1"],
        [fanIn(size), String(size + 1)],
      ] as const) {
        const layout = layoutGraph(graphOf(edges), middle);
        assertReadable(layout);
        assert.equal(layout.boxes.length, shown + 1);
        assert.deepEqual(
          layout.more.map((box) => [box.count, box.exact]),
          more === null ? [] : [[more, true]],
        );
        assert.equal(layout.lines.length, shown + (more === null ? 0 : 1));
        assert.deepEqual(
          new Set(layout.lines.map(({ status }) => status)),
          new Set(["waits", ...(more === null ? [] : [null])]),
        );
      }
    });
  }

  void test("tasks that are not in the graph are counted with those that have no box", () => {
    const layout = layoutGraph(graphOf(fan(20), { 1: { moreDependents: 9_980 } }), "1");
    assertReadable(layout);
    assert.deepEqual(
      layout.more.map((box) => [box.count, box.exact]),
      [[9_980 + 20 - maxPerColumn, true]],
    );
    const before = layoutGraph(graphOf(chain(2), { 1: { morePredecessors: 3 } }), "2");
    assertReadable(before);
    assert.deepEqual(
      before.more.map((box) => [box.count, box.x]),
      [[3, 0]],
    );
  });

  void test("a number that may count tasks twice is not exact", () => {
    const more = { 1: { morePredecessors: 3 }, 2: { morePredecessors: 4 } };
    const layout = layoutGraph(graphOf(fanIn(2), more), "3");
    assertReadable(layout);
    assert.deepEqual(
      layout.more.map((box) => [box.count, box.exact]),
      [[7, false]],
    );
  });

  void test("what else a predecessor holds up, and what else a dependent waits for, takes no space", () => {
    const more = { 1: { moreDependents: 3 }, 3: { morePredecessors: 4 } };
    assert.deepEqual(layoutGraph(graphOf(chain(3), more), "2").more, []);
  });

  void test("of a large fan, those that failed have boxes first, then those that run, then those that wait", () => {
    const states = { ...Object.fromEntries(fan(20).map(([, id]) => [id, "DONE"])), 15: "WORK", 17: "PLAN", 21: "FAIL" };
    const rest = Object.fromEntries(Object.entries(states).map(([id, state]) => [id, { state }]));
    const layout = layoutGraph(graphOf(fan(20), rest), "1");
    assert.deepEqual(ids(layout), ["1", "2", "3", "4", "5", "6", "15", "17", "21"]);
  });

  void test("the result does not depend on the order of nodes and edges", () => {
    const graph = graphOf([...fanIn(12), [3, 5], [13, 14], [13, 15], [2, 15]]);
    const reversed = { ...graph, nodes: graph.nodes.toReversed(), edges: graph.edges.toReversed() };
    const [a, b] = [layoutGraph(graph, "13"), layoutGraph(reversed, "13")];
    assert.deepEqual(a.boxes, b.boxes);
    assert.deepEqual(new Set(a.lines.map(({ path }) => path)), new Set(b.lines.map(({ path }) => path)));
  });

  void test("in 500 random graphs nothing overlaps, and all lines lead to the right", () => {
    for (let seed = 1; seed <= 500; seed++) {
      const edges = [...randomEdges(seed), [49, 50], [50, 51]] as const;
      const layout = layoutGraph(graphOf(edges), "50");
      assertReadable(layout);
    }
  });
});
