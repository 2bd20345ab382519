// Going from place to place.

import { hashOf, type Place } from "./router";

/** Go to a place; `replace`: as if the page had always been there. */
export function go(place: Place, replace = false): void {
  const hash = hashOf(place);
  if (replace) {
    history.replaceState(null, "", hash);
    dispatchEvent(new HashChangeEvent("hashchange"));
  } else location.hash = hash;
}
