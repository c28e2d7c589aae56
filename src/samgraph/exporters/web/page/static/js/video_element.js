// Frames of any video that the browser plays, for the worker, which has no video element.

const known = new Map(); // key -> {video, url}
const LONGEST = 15_000;  // milliseconds that a seek may take
const COUNTED = 8;       // frames by which the rate is known
const SLOW = 0.25;       // of the video's speed meanwhile, so that a busy machine leaves none out
const RATES = [10, 12, 12.5, 15, 20, 24000 / 1001, 24, 25, 30000 / 1001, 30, 48, 50, 60000 / 1001, 60, 120];
let count = 0;

const event = (target, name) => new Promise((resolve, reject) => {
  const timer = setTimeout(() => reject(new Error(`no ${name}`)), LONGEST);
  target.addEventListener(name, () => { clearTimeout(timer); resolve(); }, { once: true });
  target.addEventListener("error", () => { clearTimeout(timer); reject(new Error("not playable")); }, { once: true });
});

/** A usual rate, where one is within a hundredth; times are rounded in files. */
function nearest(rate) {
  const found = RATES.reduce((best, known) => (Math.abs(known - rate) < Math.abs(best - rate) ? known : best));
  return Math.abs(found - rate) < 0.01 * rate ? found : Math.round(rate * 1000) / 1000;
}

/** Frames per second: some frames are played, muted. */
async function rateOf(video) {
  if (!video.requestVideoFrameCallback) return 25;
  const times = [];
  const counted = new Promise((resolve) => {
    const next = (_, { mediaTime }) => {
      times.push(mediaTime);
      if (times.length < COUNTED) video.requestVideoFrameCallback(next);
      else resolve();
    };
    video.requestVideoFrameCallback(next);
    video.addEventListener("ended", resolve, { once: true });
    setTimeout(resolve, 3000);
  });
  video.playbackRate = SLOW;
  await video.play().catch(() => {});
  await counted;
  video.pause();
  const steps = times.slice(1).map((time, i) => time - times[i]).filter((step) => step > 1e-4);
  const even = steps.filter((step) => step < 1.5 * Math.min(...steps)); // without frames that were left out
  return even.length ? nearest(even.length / even.reduce((sum, step) => sum + step, 0)) : 25;
}

async function open({ blob }) {
  const video = document.createElement("video"), url = URL.createObjectURL(blob);
  Object.assign(video, { muted: true, playsInline: true, preload: "auto", src: url });
  try {
    await event(video, "loadeddata");
    const fps = await rateOf(video);
    if (!video.videoWidth || !Number.isFinite(video.duration)) throw new Error("no picture");
    count += 1;
    known.set(count, { video, url });
    return { key: count, width: video.videoWidth, height: video.videoHeight, fps, frames: Math.max(1, Math.round(video.duration * fps)) };
  } catch (error) {
    URL.revokeObjectURL(url);
    return { error: error.message };
  }
}

async function frame({ key, time }) {
  const { video } = known.get(key);
  const target = Math.min(time, Math.max(0, video.duration - 1e-3));
  if (Math.abs(video.currentTime - target) > 1e-6) {
    const sought = event(video, "seeked");
    video.currentTime = target;
    await sought;
  }
  return createImageBitmap(video);
}

function close({ key }) {
  const { video, url } = known.get(key) ?? {};
  known.delete(key);
  video?.removeAttribute("src");
  if (url) URL.revokeObjectURL(url);
}

/** Answers what the worker asks of a video element: open, frame, close. */
export const answerElement = async ({ what, ...details }) => ({ open, frame, close })[what](details);
