// Masks of the open medium, whichever kind it is.

import * as image from "./image.js";
import { state } from "./state.js";
import * as video from "./video.js";

const kind = () => (state.medium?.kind === "video" ? video : image);

/** The mask of an object on the frame shown: {rle, score, box, area}, or null. */
export const shown = (object, frame = state.frame) => kind().shown(object, frame);
/** The candidate masks of an object: {masks, chosen}, or null. */
export const candidates = (object) => kind().candidates(object);
/** Where the API keeps the medium. */
export const address = () => kind().address();
/** Where a prompt is tried without changing anything. */
export const predictPath = () => (state.medium.kind === "video" ? `${video.address()}/frames/${state.frame}/predict` : `${image.address()}/predict`);
