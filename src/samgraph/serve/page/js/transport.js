// How requests travel: over HTTP to the server. `samgraph export --to web` puts a module with the same exports in
// its place, which asks a worker of the page instead.

/** Where something of the API is. */
const address = (path) => `api/${path}`;

/** Sends a request; gives a Response whatever its status. Throws where nothing answers. */
export const ask = (path, options) => fetch(address(path), { ...options, credentials: "same-origin" });

/** The events of a path, as an EventSource. */
export const openEvents = (path) => new EventSource(address(path));

/** An image element's picture becomes that of a path. */
export function showPicture(image, path) {
  image.src = address(path);
}

/** Lets the browser download a path: files too large to hold in memory. */
export async function download(path) {
  const link = document.createElement("a");
  Object.assign(link, { href: address(path), download: "" });
  document.body.append(link);
  link.click();
  link.remove();
}

/**
 * Sends a file, with its progress (0 to 1): XMLHttpRequest tells, fetch does not. With `session`, the session file
 * that a video goes on with, both travel as a form. Gives a Response; throws where nothing answers.
 */
export function sendFile(path, file, { session, onProgress }) {
  return new Promise((resolve, reject) => {
    const xhr = new XMLHttpRequest();
    let body = file;
    xhr.open("POST", address(`${path}${session ? "?session" : ""}`));
    if (session) {
      body = new FormData();
      body.append("file", file);
      body.append("session", session);
    } else {
      xhr.setRequestHeader("Content-Type", "application/octet-stream");
      xhr.setRequestHeader("X-Filename", encodeURIComponent(file.name));
    }
    xhr.upload.onprogress = (event) => event.lengthComputable && onProgress(event.loaded / event.total);
    xhr.onerror = () => reject(new Error("no answer"));
    xhr.onload = () => resolve(new Response(xhr.response || "{}", { status: xhr.status || 500 }));
    xhr.send(body);
  });
}
