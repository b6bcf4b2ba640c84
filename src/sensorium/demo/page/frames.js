// Frames as the server packs them: length of the header, header (JSON), arrays that it lists.

const KINDS = { i1: Int8Array, u1: Uint8Array, f4: Float32Array, i4: Int32Array };

export function unpack(buffer) {
  const length = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  let place = 4 + length;
  const arrays = {};
  for (const [name, kind, shape] of header.arrays) {
    place += -place & 3;
    const count = shape.reduce((product, side) => product * side, 1);
    const values = new KINDS[kind](buffer, place, count);
    values.shape = shape;
    arrays[name] = values;
    place += values.byteLength;
  }
  return { ...header, ...arrays };
}
