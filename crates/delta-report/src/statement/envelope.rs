//! The envelope around a statement: DSSE 1.0.2, signed with the operator's key for seals.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use delta_base::json;
use delta_run::journal::seal::{SealKeys, Signer};
use delta_run::journal::seal_key::SealKey;
use delta_run::journal::signature::{PublicKey, Signature};
use serde::{Deserialize, Serialize};

/// The most signatures of an envelope.
const MAX_SIGNATURES: usize = 32;

/// An envelope as a file has it.
#[derive(Serialize, Deserialize)]
struct EnvelopeFile {
    payload: String,
    #[serde(rename = "payloadType")]
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Serialize, Deserialize)]
struct EnvelopeSignature {
    /// The public key. Nothing covers it, so it decides nothing.
    #[serde(default)]
    keyid: Option<String>,
    sig: String,
}

/// A text with signatures.
#[derive(Debug)]
pub struct SignedEnvelope {
    /// What kind of text it is.
    pub payload_type: String,
    /// The text.
    pub payload: Vec<u8>,
    /// The signatures that have the form of one of Ed25519, and the public key that each names.
    signatures: Vec<(Option<PublicKey>, Signature)>,
}

impl SignedEnvelope {
    /// The envelope of a text, signed with the key that seals, on a line.
    pub fn sign(payload_type: &str, payload: &[u8], key: &SealKey) -> String {
        let signed = key.sign_message(&encode_signed_message(payload_type, payload));
        let signature = EnvelopeSignature {
            keyid: Some(signed.key.to_string()),
            sig: STANDARD.encode(signed.signature.as_bytes()),
        };
        let file = EnvelopeFile {
            payload: STANDARD.encode(payload),
            payload_type: payload_type.to_owned(),
            signatures: vec![signature],
        };
        format!("{}\n", json::to_json(&file))
    }

    /// Reads an envelope. Signatures of other kinds do not count.
    ///
    /// # Errors
    /// It is something else; the message completes "it ...".
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("is empty".to_owned());
        }
        let file: EnvelopeFile = serde_json::from_slice(bytes)
            .map_err(|error| format!("is not a DSSE envelope: {error}"))?;
        if file.signatures.len() > MAX_SIGNATURES {
            return Err(format!("has more than {MAX_SIGNATURES} signatures"));
        }
        let payload = decode_any_base64(&file.payload).ok_or("has a payload that is not base64")?;
        let signatures = file.signatures.iter().filter_map(|signature| {
            let key = signature.keyid.as_deref().and_then(|key| PublicKey::parse(key).ok());
            Some((key, Signature::from_bytes(&decode_any_base64(&signature.sig)?)?))
        });
        let signatures = signatures.collect();
        Ok(Self { payload_type: file.payload_type, payload, signatures })
    }

    /// Whose signature it has: of the keys, or else of a key that it names itself, without a signer.
    pub fn find_signer(&self, keys: &SealKeys) -> Option<(Option<Signer>, PublicKey)> {
        let message = encode_signed_message(&self.payload_type, &self.payload);
        let known =
            self.signatures.iter().find_map(|(_, signature)| keys.find_signer(&message, signature));
        known.map(|(signer, key)| (Some(signer), key)).or_else(|| {
            let named = self
                .signatures
                .iter()
                .filter_map(|(key, signature)| key.filter(|key| key.verifies(&message, signature)));
            named.map(|key| (None, key)).next()
        })
    }
}

/// What is signed: the pre-authentication encoding.
fn encode_signed_message(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// Decodes base64 of either alphabet, with padding or without.
fn decode_any_base64(text: &str) -> Option<Vec<u8>> {
    let is_for_urls = text.bytes().any(|byte| matches!(byte, b'-' | b'_'));
    let alphabet = if is_for_urls { &alphabet::URL_SAFE } else { &alphabet::STANDARD };
    let config =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    GeneralPurpose::new(alphabet, config).decode(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    #[test]
    fn c_36_13_what_is_signed_is_the_encoding_of_the_specification() {
        let message = encode_signed_message("http://example.com/HelloWorld", b"hello world");
        assert_eq!(message, b"DSSEv1 29 http://example.com/HelloWorld 11 hello world");
        assert_eq!(encode_signed_message("", "ü".as_bytes()), "DSSEv1 0  2 ü".as_bytes());
    }

    #[test]
    fn c_36_13_an_envelope_of_others_is_read_as_the_specification_says() {
        let other = |payload: &str, more: &str| {
            let file =
                format!(r#"{{"payload":"{payload}","payloadType":"t","signatures":[{more}]}}"#);
            SignedEnvelope::parse(file.as_bytes())
        };
        for payload in ["+/8=", "-_8=", "-_8", "+/8"] {
            let envelope = other(payload, r#"{"sig":"AA==","future":1},{"keyid":null,"sig":""}"#);
            let envelope = envelope.unwrap();
            assert_eq!(envelope.payload, [0xfb, 0xff]);
            assert_eq!(envelope.find_signer(&SealKeys::default()), None);
        }
        for payload in ["+_8=", "+/9=", "+/8=\\n", "%", "a"] {
            assert!(other(payload, "").is_err(), "{payload}");
        }
        let many = vec![r#"{"sig":""}"#; MAX_SIGNATURES + 1].join(",");
        assert!(other("", &many).unwrap_err().contains("more than 32"));
        for file in
            ["", "[]", "{}", r#"{"payload":"","payload":"","payloadType":"","signatures":[]}"#]
        {
            assert!(SignedEnvelope::parse(file.as_bytes()).is_err(), "{file}");
        }
    }
}
