"""Coordinates of regions by name, for maps and estimated links; no cost depends on them.

Latitudes and longitudes in degrees, rounded to 0.1, from the GeoNames gazetteer (geonames.org, CC BY 4.0). Of
cities that share a name, the largest. Codes and names of regions as Amazon's documentation lists them; where
those name a state or a country, the point is a city in it, which need not be where the machines are.

Latency and bandwidth of a link are estimated from nothing but the distance of its ends, by a rule with four
constants, fitted to the 45 pairs of AWS regions in DT-FM's config.py (2022) by least squares
of logarithms. Latencies are one way, as that code charges them to each message.

- latency = 5.6 ms + 3.0 x great circle / (200,000 km/s, light in fibre). The factor is cables' detours, and, by
  its size, that these latencies look like round trips.
- bandwidth = 78 Mbit / latency, at most 1.05 Gbit/s: the rate of one stream whose window is 9.75 MB.

Over the 45 pairs the rule's latency is off by 15 % at the median and by 43 % at most (Seoul to Europe takes a
long way round), its bandwidth by 12 % and 66 %.
"""

import re
import unicodedata
from functools import cache
from math import asin, cos, radians, sin, sqrt
from typing import NamedTuple

from dtfm_lab.domain.units import from_gbps

CODE = re.compile(r"\b([a-z]{2}-[a-z]+-\d)[a-z]?\b")
"""Code of a region, with an optional letter of a zone."""
EARTH_RADIUS_M = 6_371_008.8
"""Mean radius, IUGG."""
FIBRE_M_PER_S = 2.0e8
"""Speed of light in glass, about two thirds of that in a vacuum."""
DETOUR = 3.0
"""Fitted length of a message's way as a multiple of the great circle."""
OVERHEAD_S = 5.6e-3
"""Latency at distance 0, in seconds."""
WINDOW_BYTES = 78e6 / 8
"""Bytes of one stream in flight at once."""
MOST_BYTES_PER_S = from_gbps(1.05)
"""Bandwidth limit of near pairs, in bytes per second."""


class Place(NamedTuple):
    """A point on the globe, in degrees."""

    latitude: float
    """Positive to the north."""
    longitude: float
    """Positive to the east, -180 to 180."""


def find_place(region: str) -> Place | None:
    """Place of a city, a region or its code; None for any other name.

    Case, accents and punctuation do not count, nor do a number or a zone's letter at the end: ``zurich``,
    ``Sao-Paulo``, ``us-west-2``, ``aws:eu-west-1b``, ``Tokyo 2``, ``US East (N. Virginia)``.
    """
    places = _places()
    if code := CODE.search(region.casefold().replace("_", "-")):
        return places.get(_words(code.group(1)))
    tries = (region, *re.findall(r"\(([^)]*)\)", region), region.partition("(")[0])
    return next((places[words] for words in map(_name, tries) if words in places), None)


def place_names() -> list[str]:
    """The cities that ``find_place`` can find, without their other names."""
    return [name for name, _ in _cities()]


def _name(region: str) -> str:
    return re.sub(r"[ \d]+$", "", _words(region))


def _words(name: str) -> str:
    """Lower-case words of plain letters and digits: ``São Paulo`` and ``sao_paulo`` are one."""
    letters = (c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
    return " ".join(re.findall(r"[^\W_]+", "".join(letters).casefold()))


@cache
def _places() -> dict[str, Place]:
    places = {_words(name): place for name, place in _cities()}
    for line in OTHER_NAMES.replace("\n", " ").split(";"):
        *others, city = map(_words, line.split("="))
        places |= dict.fromkeys(others, places[city])
    return places


def _cities() -> list[tuple[str, Place]]:
    entries = (entry.rsplit(maxsplit=2) for entry in CITIES.replace("\n", " ").split(";"))
    return [(name.strip(), Place(float(latitude), float(longitude))) for name, latitude, longitude in entries]


class Link(NamedTuple):
    """Estimated link from one place to another, one way."""

    distance_m: float
    latency_s: float
    bandwidth_bytes_per_s: float


def great_circle_m(a: Place, b: Place) -> float:
    """Metres along the globe, taken as a sphere: within 0.6 % of the ellipsoid."""
    north_a, north_b = radians(a.latitude), radians(b.latitude)
    half_north, half_east = (north_b - north_a) / 2, radians(b.longitude - a.longitude) / 2
    haversine = sin(half_north) ** 2 + cos(north_a) * cos(north_b) * sin(half_east) ** 2
    return 2 * EARTH_RADIUS_M * asin(sqrt(min(haversine, 1.0)))


def link_over(distance_m: float) -> Link:
    """The rule's link over a distance."""
    latency_s = OVERHEAD_S + DETOUR * distance_m / FIBRE_M_PER_S
    return Link(distance_m, latency_s, min(MOST_BYTES_PER_S, WINDOW_BYTES / latency_s))


def link_between(a: Place, b: Place) -> Link:
    """The rule's link between two places, the same in both directions."""
    return link_over(great_circle_m(a, b))


OTHER_NAMES = """
Virginia = N. Virginia = Northern Virginia = us-east-1 = Ashburn; Ohio = us-east-2 = Columbus;
California = N. California = Northern California = us-west-1 = San Francisco;
Oregon = us-west-2 = Boardman; Ireland = eu-west-1 = Dublin;
af-south-1 = Cape Town; ap-east-1 = Hong Kong; ap-east-2 = Taipei; ap-northeast-1 = Tokyo; ap-northeast-2 = Seoul;
ap-northeast-3 = Osaka; ap-south-1 = Mumbai; ap-south-2 = Hyderabad; ap-southeast-1 = Singapore;
ap-southeast-2 = Sydney; ap-southeast-3 = Jakarta; ap-southeast-4 = Melbourne;
ap-southeast-5 = Malaysia = Kuala Lumpur; ap-southeast-6 = New Zealand = Auckland;
ap-southeast-7 = Thailand = Bangkok; ca-central-1 = Canada = Montreal; ca-west-1 = Calgary; cn-north-1 = Beijing;
cn-northwest-1 = Ningxia = Yinchuan; eu-central-1 = Frankfurt; eu-central-2 = Zürich; eu-north-1 = Stockholm;
eu-south-1 = Milan; eu-south-2 = Spain = Zaragoza; eu-west-2 = London; eu-west-3 = Paris;
il-central-1 = Tel Aviv; me-central-1 = UAE = Dubai; me-south-1 = Bahrain = Manama; mx-central-1 = Querétaro;
sa-east-1 = São Paulo;
Bengaluru = Bangalore; Bombay = Mumbai; Calcutta = Kolkata; Frankfurt am Main = Frankfurt; Genève = Geneva;
Iowa = Council Bluffs; Kiev = Kyiv; Köln = Cologne; Lisboa = Lisbon; Madras = Chennai; Milano = Milan;
Montréal = Montreal; München = Munich; New Delhi = Delhi; New York City = NYC = New York; Praha = Prague;
Roma = Rome; Saigon = Ho Chi Minh City; Silicon Valley = San Jose; St. Petersburg = Saint Petersburg;
Washington DC = Washington D.C. = Washington; Wien = Vienna; Xian = Xi'an
"""
"""Names of one place in a row, the city's own last."""

CITIES = """
Abu Dhabi 24.5 54.4; Accra 5.6 -0.2; Addis Ababa 9 38.7; Adelaide -34.9 138.6; Ahmedabad 23 72.6; Algiers 36.7 3.1;
Almaty 43.3 76.9; Amman 32 35.9; Amsterdam 52.4 4.9; Ankara 39.9 32.9; Ashburn 39 -77.5; Athens 38 23.7;
Atlanta 33.7 -84.4; Auckland -36.8 174.8; Austin 30.3 -97.7; Baghdad 33.3 44.4; Baltimore 39.3 -76.6;
Bangalore 13 77.6; Bangkok 13.8 100.5; Barcelona 41.4 2.2; Basel 47.6 7.6; Beijing 39.9 116.4; Beirut 33.9 35.5;
Belgrade 44.8 20.5; Belo Horizonte -19.9 -43.9; Bergen 60.4 5.3; Berlin 52.5 13.4; Bern 46.9 7.4; Bilbao 43.3 -2.9;
Birmingham 52.5 -1.9; Boardman 45.8 -119.7; Bogotá 4.6 -74.1; Bordeaux 44.8 -0.6; Boston 42.4 -71.1;
Brasília -15.8 -47.9; Bratislava 48.1 17.1; Brisbane -27.5 153; Brno 49.2 16.6; Brussels 50.9 4.3;
Bucharest 44.4 26.1; Budapest 47.5 19; Buenos Aires -34.6 -58.4; Busan 35.1 129; Cairo 30.1 31.2; Calgary 51.1 -114.1;
Cambridge 52.2 0.1; Canberra -35.3 149.1; Cape Town -33.9 18.4; Caracas 10.5 -66.9; Casablanca 33.6 -7.6;
Changsha 28.2 113; Charlotte 35.2 -80.8; Chengdu 30.7 104.1; Chennai 13.1 80.3; Chicago 41.9 -87.7;
Chongqing 29.6 106.6; Cologne 50.9 7; Colombo 6.9 79.8; Columbus 40 -83; Copenhagen 55.7 12.6; Cork 51.9 -8.5;
Council Bluffs 41.3 -95.9; Dakar 14.7 -17.4; Dallas 32.8 -96.8; Dar es Salaam -6.8 39.3; Darmstadt 49.9 8.7;
Delhi 28.7 77.2; Denver 39.7 -105; Detroit 42.3 -83; Dhaka 23.7 90.4; Doha 25.3 51.5; Dresden 51.1 13.7;
Dubai 25.1 55.3; Dublin 53.3 -6.2; Durban -29.9 31; Düsseldorf 51.2 6.8; Edinburgh 56 -3.2; Edmonton 53.6 -113.5;
Eindhoven 51.4 5.5; Florence 43.8 11.2; Fortaleza -3.7 -38.5; Frankfurt 50.1 8.7; Fukuoka 33.6 130.4;
Gdańsk 54.4 18.6; Geneva 46.2 6.1; Genoa 44.4 8.9; Glasgow 55.9 -4.3; Gothenburg 57.7 12; Grenoble 45.2 5.7;
Groningen 53.2 6.6; Guadalajara 20.7 -103.3; Guangzhou 23.1 113.2; Haifa 32.8 35; Hamburg 53.6 10; Hamina 60.6 27.2;
Hangzhou 30.3 120.2; Hanoi 21 105.8; Harare -17.8 31.1; Helsinki 60.2 24.9; Ho Chi Minh City 10.8 106.6;
Hong Kong 22.3 114.2; Honolulu 21.3 -157.9; Houston 29.8 -95.4; Hyderabad 17.4 78.5; Indianapolis 39.8 -86.2;
Islamabad 33.7 73; Istanbul 41 28.9; Jakarta -6.2 106.8; Jeddah 21.5 39.2; Jerusalem 31.8 35.2; Johannesburg -26.2 28;
Kampala 0.3 32.6; Kansas City 39.1 -94.6; Karachi 24.9 67; Kathmandu 27.7 85.3; Kinshasa -4.3 15.3; Kolkata 22.6 88.4;
Kraków 50.1 19.9; Kuala Lumpur 3.1 101.7; Kuwait 29.4 48; Kyiv 50.5 30.5; Kyoto 35 135.8; Lagos 6.5 3.4;
Lahore 31.6 74.4; Las Vegas 36.2 -115.1; Lausanne 46.5 6.6; Leipzig 51.3 12.4; Lille 50.6 3.1; Lima -12 -77;
Lisbon 38.7 -9.1; Ljubljana 46.1 14.5; London 51.5 -0.1; Los Angeles 34.1 -118.2; Luanda -8.8 13.2; Luleå 65.6 22.2;
Luxembourg 49.6 6.1; Lyon 45.7 4.8; Madrid 40.4 -3.7; Malmö 55.6 13; Manama 26.2 50.6; Manchester 53.5 -2.2;
Manila 14.6 121; Marseille 43.3 5.4; Medellín 6.2 -75.6; Melbourne -37.8 145; Memphis 35.1 -90;
Mexico City 19.4 -99.1; Miami 25.8 -80.2; Milan 45.5 9.2; Minneapolis 45 -93.3; Minsk 53.9 27.6;
Monterrey 25.7 -100.3; Montevideo -34.9 -56.2; Montreal 45.5 -73.6; Moscow 55.8 37.6; Mumbai 19.1 72.9;
Munich 48.1 11.6; Muscat 23.6 58.4; Nagoya 35.2 136.9; Nairobi -1.3 36.8; Nanjing 32.1 118.8; Naples 40.9 14.3;
New Orleans 30 -90.1; New York 40.7 -74; Nice 43.7 7.3; Novosibirsk 55 82.9; Nuremberg 49.5 11.1; Omaha 41.3 -95.9;
Osaka 34.7 135.5; Oslo 59.9 10.7; Ottawa 45.4 -75.7; Oxford 51.8 -1.3; Palo Alto 37.4 -122.1; Panama 9 -79.5;
Paris 48.9 2.3; Perth -32 115.9; Philadelphia 40 -75.2; Phoenix 33.4 -112.1; Pittsburgh 40.4 -80;
Port Louis -20.2 57.5; Portland 45.5 -122.7; Porto 41.1 -8.6; Porto Alegre -30 -51.2; Poznań 52.4 16.9;
Prague 50.1 14.4; Pune 18.5 73.9; Quebec 46.8 -71.2; Querétaro 20.6 -100.4; Quito -0.2 -78.5; Rabat 34 -6.8;
Recife -8.1 -34.9; Reykjavík 64.1 -21.9; Riga 56.9 24.1; Rio de Janeiro -22.9 -43.2; Riyadh 24.7 46.7; Rome 41.9 12.5;
Rotterdam 51.9 4.5; Sacramento 38.6 -121.5; Saint Petersburg 59.9 30.3; Salt Lake City 40.8 -111.9;
Salvador -13 -38.5; San Diego 32.7 -117.2; San Francisco 37.8 -122.4; San Jose 37.3 -121.9; San Juan 18.5 -66.1;
Santiago -33.5 -70.6; São Paulo -23.5 -46.6; Sapporo 43.1 141.3; Seattle 47.6 -122.3; Seoul 37.6 127;
Shanghai 31.2 121.5; Shenzhen 22.5 114.1; Singapore 1.3 103.9; Sofia 42.7 23.3; Stavanger 59 5.7; Stockholm 59.3 18.1;
Strasbourg 48.6 7.7; Stuttgart 48.8 9.2; Suzhou 31.3 120.6; Sydney -33.9 151.2; Taipei 25.1 121.5; Tallinn 59.4 24.8;
Tampa 27.9 -82.5; Tashkent 41.3 69.2; Tbilisi 41.7 44.8; Tehran 35.7 51.4; Tel Aviv 32.1 34.8; The Hague 52.1 4.3;
Tianjin 39.1 117.2; Tokyo 35.7 139.7; Toronto 43.7 -79.4; Toulouse 43.6 1.4; Tromsø 69.6 19; Trondheim 63.4 10.4;
Tunis 36.8 10.2; Turin 45.1 7.7; Utrecht 52.1 5.1; Valencia 39.5 -0.4; Vancouver 49.2 -123.1; Venice 45.4 12.3;
Vienna 48.2 16.4; Vilnius 54.7 25.3; Warsaw 52.2 21; Washington 38.9 -77; Wellington -41.3 174.8; Winnipeg 49.9 -97.1;
Wrocław 51.1 17; Wuhan 30.6 114.3; Xi'an 34.3 108.9; Yerevan 40.2 44.5; Yinchuan 38.5 106.3; Yokohama 35.4 139.7;
Zagreb 45.8 16; Zaragoza 41.7 -0.9; Zürich 47.4 8.6
"""
"""Name, latitude and longitude of each city."""
