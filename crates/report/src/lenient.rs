//! Reading back what JSON cannot say: `null` in place of a number that was not finite.

use serde::{Deserialize, Deserializer};

/// A number; `null` is NaN.
pub fn number<'de, D: Deserializer<'de>>(source: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(source)?.unwrap_or(f64::NAN))
}

/// Rows of `N` numbers; a row that holds `null` is left out.
pub fn rows<'de, D, const N: usize>(source: D) -> Result<Vec<[f64; N]>, D::Error>
where
    D: Deserializer<'de>,
{
    let rows = Vec::<Vec<Option<f64>>>::deserialize(source)?;
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        if row.len() != N {
            return Err(serde::de::Error::invalid_length(row.len(), &"a pair or a triple"));
        }
        let numbers: Vec<f64> = row.into_iter().flatten().collect();
        if let Ok(row) = <[f64; N]>::try_from(numbers) {
            kept.push(row);
        }
    }
    Ok(kept)
}
