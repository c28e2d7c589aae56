// The timeline of a tracked video: where objects are, and which frames are worth a look; as `serve/timeline.py`.

const LOW_SHARE = 0.7;  // a score this far below the object's median is low
const AREA_JUMP = 1.7;  // the area of an object changes by less from one frame to the next
const MOST_REVIEWS = 500;

/** Frames, in order, as ranges with both ends included. */
export function ranges(frames) {
  const found = [];
  for (const frame of frames) {
    if (found.length && found.at(-1)[1] === frame - 1) found.at(-1)[1] = frame;
    else found.push([frame, frame]);
  }
  return found;
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

function* reviews(id, lane, frames, low) {
  for (const frame of frames) {
    const now = lane.get(frame), before = lane.get(frame - 1);
    if (!before) continue;
    if (before.present && !now.present) yield { frame, object: id, reason: "disappeared" };
    if (!before.present && now.present) yield { frame, object: id, reason: "came back" };
    const both = before.present && now.present && before.area > 0 && now.area > 0;
    if (both && Math.max(now.area / before.area, before.area / now.area) > AREA_JUMP) yield { frame, object: id, reason: "area jump" };
  }
  for (const [frame] of ranges(low)) yield { frame, object: id, reason: "low score" };
}

/** The timeline of objects {id, version, prompts, lane: frame -> {present, score, area, prompted, version}}. */
export function timelineOf(frames, objects) {
  const lanes = [], review = [];
  for (const { id, version, prompts, lane } of objects) {
    const known = [...lane.keys()].sort((a, b) => a - b), seen = known.filter((frame) => lane.get(frame).present);
    const least = seen.length ? LOW_SHARE * median(seen.map((frame) => lane.get(frame).score)) : 0;
    const low = seen.filter((frame) => !lane.get(frame).prompted && lane.get(frame).score < least);
    const stale = known.filter((frame) => lane.get(frame).version !== version);
    lanes.push({ id, prompts, tracked: ranges(known), present: ranges(seen), low: ranges(low), stale: ranges(stale) });
    review.push(...reviews(id, lane, known, low));
  }
  review.sort((a, b) => a.frame - b.frame || a.object - b.object);
  return { frames, objects: lanes, review: review.slice(0, MOST_REVIEWS) };
}
