//! Pictures of samples: rows of red, green and blue as PNG, and as the address by which a page carries them itself.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

use super::plot::svg::escape;
use super::policy::base64;

/// What every PNG file begins with.
const SIGNATURE: [u8; 8] = [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n'];
/// Eight bits of each of red, green and blue; deflate, adaptive filters, not interlaced.
const HEADER_END: [u8; 5] = [8, 2, 0, 0, 0];
/// Bytes of a sample.
const SAMPLE_BYTES: usize = 3;

/// A picture: its samples row by row, three bytes each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    width: u32,
    height: u32,
    samples: Vec<u8>,
}

impl Picture {
    /// `samples` in rows of `width`, neither of them empty.
    ///
    /// # Panics
    /// If they are no whole rows.
    pub fn new(width: u32, samples: Vec<u8>) -> Picture {
        let row = width as usize * SAMPLE_BYTES;
        assert!(
            row > 0 && !samples.is_empty() && samples.len().is_multiple_of(row),
            "rows of samples"
        );
        Picture { width, height: (samples.len() / row) as u32, samples }
    }

    /// The same as a PNG file (ISO/IEC 15948): without filters, in one piece.
    pub fn png(&self) -> Vec<u8> {
        let mut header = Vec::new();
        header.extend(self.width.to_be_bytes());
        header.extend(self.height.to_be_bytes());
        header.extend(HEADER_END);
        let mut deflated = ZlibEncoder::new(Vec::new(), Compression::default());
        for row in self.samples.chunks(self.width as usize * SAMPLE_BYTES) {
            // (A vector takes all that is written to it.)
            deflated.write_all(&[0]).and_then(|()| deflated.write_all(row)).expect("memory");
        }
        let deflated = deflated.finish().expect("memory");
        let mut png = SIGNATURE.to_vec();
        chunk(&mut png, *b"IHDR", &header);
        chunk(&mut png, *b"IDAT", &deflated);
        chunk(&mut png, *b"IEND", &[]);
        png
    }

    /// A figure of it, `times` as large as its samples, with a title and what to see.
    pub fn figure(&self, [title, caption]: [&str; 2], times: u32) -> String {
        let [title, caption] = [title, caption].map(escape);
        format!(
            "<figure><figcaption><b>{title}.</b> {caption}</figcaption><img \
             src=\"data:image/png;base64,{}\" width=\"{}\" height=\"{}\" alt=\"{title}\"></figure>\n",
            base64(&self.png()),
            self.width * times,
            self.height * times
        )
    }
}

/// Appends a chunk: its length, its name, its content, and a sum of name and content.
fn chunk(png: &mut Vec<u8>, name: [u8; 4], content: &[u8]) {
    png.extend((content.len() as u32).to_be_bytes());
    png.extend(name);
    png.extend(content);
    let mut sum = Crc::new();
    sum.update(&name);
    sum.update(content);
    png.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn a_picture_is_a_png_as_the_standard_has_it() {
        let picture = Picture::new(2, vec![255, 0, 0, 0, 255, 0, 0, 0, 255, 9, 8, 7]);
        let png = picture.png();
        assert_eq!(png[..16], [&SIGNATURE[..], &[0, 0, 0, 13], b"IHDR"].concat());
        assert_eq!(png[16..29], [0, 0, 0, 2, 0, 0, 0, 2, 8, 2, 0, 0, 0]);
        // The empty chunk at the end has the sum that the standard's own example has.
        assert_eq!(
            png[png.len() - 12..],
            [0, 0, 0, 0, b'I', b'E', b'N', b'D', 0xae, 0x42, 0x60, 0x82]
        );
        let bytes = u32::from_be_bytes([png[33], png[34], png[35], png[36]]) as usize;
        assert_eq!((&png[37..41], png.len()), (&b"IDAT"[..], 41 + bytes + 4 + 12));
        let mut rows = Vec::new();
        ZlibDecoder::new(&png[41..41 + bytes]).take(99).read_to_end(&mut rows).expect("rows");
        assert_eq!(rows, [0, 255, 0, 0, 0, 255, 0, 0, 0, 0, 255, 9, 8, 7]);
    }

    #[test]
    fn a_figure_carries_its_picture() {
        let html = Picture::new(1, vec![1, 2, 3]).figure(["<a>", "what to see"], 2);
        assert!(html.contains("<b>&lt;a&gt;.</b> what to see"), "{html}");
        assert!(html.contains("src=\"data:image/png;base64,iVBORw0KGgo"), "{html}");
        assert!(html.contains("width=\"2\" height=\"2\""), "{html}");
    }
}
