"""The map: a card for each city around a globe, pipes between the cards, and the plan's badges on their devices."""

from typing import Any

import numpy as np
import numpy.typing as npt
import traitlets

from dtfm_lab.domain.network import find_place, place_names
from dtfm_lab.figures.maps.atlas import land_rings
from dtfm_lab.widgets.views.view import DocumentView


class MapView(DocumentView):
    """Draws and edits a topology document: a card for each region around a globe, pipes between the cards.

    The name of a device's region is its city. Regions that are not known places have cards at the lower edge. The page
    sends {"kind": "swap", "a", "b"} if one device is dropped on another while a plan is shown.
    """

    land = traitlets.Bytes().tag(sync=True)
    """Outlines of the land as int16 tenths of degrees: for each ring its number of points, then their longitudes and
    latitudes."""
    cities = traitlets.List(traitlets.List()).tag(sync=True)
    """[name, longitude, latitude] of each city where a device may be dropped."""
    places = traitlets.Dict().tag(sync=True)
    """{region: [longitude, latitude]} of the document's regions that are known places."""
    gpu = traitlets.Unicode("").tag(sync=True)
    """The GPU model of a new device. If ``gpus`` does not contain it, the first of ``gpus`` is used."""
    tool = traitlets.Enum(["select", "add"], "select").tag(sync=True)
    """What a click does: select, or add a device to the nearest city."""
    still = traitlets.Bool(False).tag(sync=True)
    """True for a read-only map: nothing is edited, and no message is sent. Set at creation."""
    drags = traitlets.Bool(False).tag(sync=True)
    """True if the labels of links can be dragged even on a still map. Set at creation."""

    def __init__(self, *arguments: Any, **traits: Any) -> None:
        known = [(name, find_place(name)) for name in place_names()]
        cities = [[name, place.longitude, place.latitude] for name, place in known if place is not None]
        super().__init__(*arguments, land=land_tenths().tobytes(), cities=cities, **traits)
        self.observe(lambda _: self._find_places(), "document")
        self._find_places()

    def _find_places(self) -> None:
        names = {region["name"] for region in self.document["regions"]}
        found = {name: find_place(name) for name in sorted(names)}
        self.places = {name: [place.longitude, place.latitude] for name, place in found.items() if place is not None}

    def alt_text(self) -> str:
        devices = self.document["devices"]
        on_map = [device for device in devices if device["region"] in self.places]
        cities = len({device["region"] for device in on_map})
        lost = len(devices) - len(on_map)
        where = f"{len(on_map)} device{'s' * (len(on_map) != 1)} in {cities} {'city' if cities == 1 else 'cities'}"
        words = f"World map of {self.document.get('name') or 'a network'}: {where}"
        return f"{words}, {lost} in no known place" if lost else words


def land_tenths() -> npt.NDArray[np.int16]:
    """Return the outlines as one row of whole tenths of degrees: for each ring its length, then its points."""
    parts = [np.concatenate([[len(ring)], np.rint(ring * 10).ravel()]) for ring in land_rings()]
    return np.concatenate(parts).astype("<i2")
