// Which rows a timeline has, and where: per device its lanes, then moves, requests and pauses where there are any.

export const AXIS = 26;
export const LABELS = 92; // pixels left of the blocks
const HEIGHTS = { device: 24, lane: 26, moves: 16, requests: 16, pauses: 16 };
const KINDS = [["moves", "moves"], ["requests", "requests"], ["pauses", "pauses"]];

/** [{kind, device, lane?, label, top, height, blocks, live}], and the height of all. */
export function layOut(data, devices, only) {
  const lanes = withPresent(data.lanes(), devices).filter((lane) => only === undefined || lane.device === only);
  const names = [...new Set([...devices.map((device) => device.id), ...lanes.map((lane) => lane.device)])];
  const rows = [];
  let top = AXIS;
  const add = (row) => {
    rows.push({ ...row, top, height: HEIGHTS[row.kind] });
    top += HEIGHTS[row.kind];
  };
  for (const device of names) {
    add({ kind: "device", device, label: device, blocks: [], live: [] });
    for (const lane of lanes.filter((one) => one.device === device)) add({ kind: "lane", device, lane: lane.lane, label: `lane ${lane.lane}`, blocks: lane.turns, live: lane.live });
    for (const [kind, label] of KINDS) {
      const blocks = (data.answer?.[kind] ?? []).filter((one) => one[0] === device).map(([, job, begin, end, what, text]) => [begin, end, job, 1, what, null, text]);
      if (blocks.length) add({ kind, device, label, blocks: blocks.sort((a, b) => a[0] - b[0]), live: [] });
    }
  }
  return { rows, height: Math.max(top + 8, 120) };
}

/** Lanes that a device has now are shown even where nothing has happened in them. */
function withPresent(lanes, devices) {
  const known = new Set(lanes.map((one) => `${one.device} ${one.lane}`));
  const more = devices.flatMap((device) => device.lanes.filter((lane) => !known.has(`${device.id} ${lane.id}`))
    .map((lane) => ({ device: device.id, lane: lane.id, turns: [], live: [] })));
  return [...lanes, ...more].sort((a, b) => a.device.localeCompare(b.device, "en", { numeric: true }) || a.lane - b.lane);
}

/** The position of the first block that ends after `us`; blocks of a lane are sorted and do not overlap. */
export function firstAfter(blocks, us) {
  let low = 0;
  let high = blocks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const end = blocks[middle][1];
    if (end !== null && end < us) low = middle + 1;
    else high = middle;
  }
  return low;
}
