"""What presenting enlarges in the specs of the page's figures."""

from dashboard.draw.vega import enlarged


def test_lengths_grow_areas_by_the_square_and_data_stay():
    spec = {
        "height": {"step": 20},
        "width": "container",
        "padding": {"left": 4},
        "title": {"text": "a", "fontSize": 14},
        "layer": [
            {
                "data": {"values": [{"size": 3, "height": 4}]},
                "mark": {"type": "point", "size": 10, "dx": -4},
                "encoding": {
                    "x": {"axis": {"labelFontSize": 12, "labels": True}, "scale": {"padding": 1}},
                    "strokeWidth": {"value": 2},
                },
            }
        ],
    }
    assert enlarged(spec, 1.5) == {
        "height": {"step": 30},
        "width": "container",
        "padding": {"left": 6},
        "title": {"text": "a", "fontSize": 21},
        "layer": [
            {
                "data": {"values": [{"size": 3, "height": 4}]},
                "mark": {"type": "point", "size": 22.5, "dx": -6},
                "encoding": {
                    "x": {"axis": {"labelFontSize": 18, "labels": True}, "scale": {"padding": 1}},
                    "strokeWidth": {"value": 3},
                },
            }
        ],
    }
