// The outline of a mask as a path that can be stroked at any zoom.

const MOVES = [[1, 0], [0, 1], [-1, 0], [0, -1]];          // right, down, left, up
const LEFT_AHEAD = [[0, -1], [0, 0], [-1, 0], [-1, -1]];   // the pixel ahead on the left, from a corner
const RIGHT_AHEAD = [[0, 0], [-1, 0], [-1, -1], [0, -1]];

/** A Path2D of a bitmap's outlines in pixels of the picture; corners are cut by half a sample. */
export function outline({ data, x, y, width, height, step }) {
  const path = new Path2D();
  const seen = new Uint8Array(width * height);
  const inside = (column, row) => column >= 0 && row >= 0 && column < width && row < height && data[row * width + column];
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const at = row * width + column;
      if (data[at] && !seen[at] && !inside(column, row - 1)) trace(path, column, row, inside, seen, width, { x, y, step });
    }
  }
  return path;
}

/** Follows one outline, the mask on the right, from the upper edge of a pixel round to it again. */
function trace(path, startColumn, startRow, inside, seen, width, { x, y, step }) {
  let column = startColumn, row = startRow, way = 0, first = true;
  const point = (c, r) => [(x + c) * step, (y + r) * step];
  do {
    if (way === 0) seen[row * width + column] = 1;
    const [dx, dy] = MOVES[way];
    const middle = point(column + dx / 2, row + dy / 2);
    column += dx; row += dy;
    const left = inside(column + LEFT_AHEAD[way][0], row + LEFT_AHEAD[way][1]);
    const right = inside(column + RIGHT_AHEAD[way][0], row + RIGHT_AHEAD[way][1]);
    const turn = left ? 3 : right ? 0 : 1;
    if (first) { path.moveTo(...middle); first = false; }
    way = (way + turn) % 4;
    if (turn) {
      path.lineTo(...middle);
      path.lineTo(...point(column + MOVES[way][0] / 2, row + MOVES[way][1] / 2));
    }
  } while (column !== startColumn || row !== startRow || way !== 0);
  path.closePath();
}
