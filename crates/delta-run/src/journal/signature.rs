//! Ed25519 signatures (RFC 8032), and public keys as text. Knows neither journals nor files.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use std::fmt;

/// The length of a seed and of a public key in bytes.
const KEY_BYTES: usize = 32;
/// The length of a signature in bytes.
const SIGNATURE_BYTES: usize = 64;
/// What a public key begins with as text.
const SCHEME: &str = "ed25519:";
/// A SubjectPublicKeyInfo (RFC 8410) up to the key.
const SPKI_START: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// The order of the field, less the sign bit's: coordinates from here on are other spellings of small ones.
const FIELD_ORDER_LOW_BYTE: u8 = 0xed;
/// The coordinates of the points of small order but 0, 1 and -1. Such a key verifies one signature for many messages.
const SMALL_ORDER: [&str; 2] = [
    "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
    "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
];

/// A public key, `ed25519:` and 43 characters of base64url as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Parses a key. A key has one spelling.
    ///
    /// # Errors
    /// The text is not a key, or a key that verifies messages without a signature; the message has what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bytes = text.strip_prefix(SCHEME).and_then(decode_base64).ok_or_else(|| {
            format!("expected `{SCHEME}` and 43 characters of base64url, as `delta config` prints them, found `{text}`")
        })?;
        let key = Self(bytes);
        if key.is_usable() {
            return Ok(key);
        }
        Err(format!("{text} would verify any message: expected a key that `delta config` prints"))
    }

    /// Whether the key is the only spelling of a point of large order. A point that is not on the curve verifies nothing.
    fn is_usable(&self) -> bool {
        let mut point = self.0;
        point[KEY_BYTES - 1] &= 0x7f;
        let low = point[0];
        let high = &point[1..KEY_BYTES - 1];
        let is_zeros = high.iter().all(|byte| *byte == 0);
        let is_ones = high.iter().all(|byte| *byte == 0xff);
        let last = point[KEY_BYTES - 1];
        let is_zero_or_one = is_zeros && last == 0 && low <= 1;
        let is_minus_one_or_more = is_ones && last == 0x7f && low >= FIELD_ORDER_LOW_BYTE - 1;
        let digits = delta_base::hex::encode_hex(&point);
        !is_zero_or_one && !is_minus_one_or_more && !SMALL_ORDER.contains(&&*digits)
    }

    /// Whether the holder of the key has signed `message`.
    pub fn verifies(&self, message: &[u8], signature: &Signature) -> bool {
        self.is_usable()
            && UnparsedPublicKey::new(&ED25519, self.0).verify(message, &signature.0).is_ok()
    }

    /// The key as a PEM block of a SubjectPublicKeyInfo, as OpenSSL reads it, with a newline at its end.
    pub fn to_pem(&self) -> String {
        let der = STANDARD.encode([&SPKI_START[..], &self.0].concat());
        format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signature([u8; SIGNATURE_BYTES]);

impl Signature {
    /// The signature with these bytes; `None` if there are not 64 of them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A key that signs.
pub struct SigningKey(Ed25519KeyPair);

impl SigningKey {
    /// The key of a secret seed.
    pub fn from_seed(seed: &[u8; KEY_BYTES]) -> Self {
        Self(Ed25519KeyPair::from_seed_unchecked(seed).expect("a seed has 32 bytes"))
    }

    /// Its public half.
    pub fn public_key(&self) -> PublicKey {
        PublicKey(self.0.public_key().as_ref().try_into().expect("a public key has 32 bytes"))
    }

    /// Signs a message; the signature of a message is always the same.
    pub fn sign(&self, message: &[u8]) -> Signature {
        let signature = self.0.sign(message);
        Signature(signature.as_ref().try_into().expect("a signature has 64 bytes"))
    }
}

/// A signature with the key that made it: `ed25519:PUBLIC.SIGNATURE` as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignedBy {
    /// The public key.
    pub key: PublicKey,
    /// The signature.
    pub signature: Signature,
}

impl SignedBy {
    /// Parses the text; `None` unless it is written as [`SignedBy`] prints it.
    pub fn parse(text: &str) -> Option<Self> {
        let (key, signature) = text.strip_prefix(SCHEME)?.split_once('.')?;
        Some(Self {
            key: PublicKey(decode_base64(key)?),
            signature: Signature(decode_base64(signature)?),
        })
    }
}

impl fmt::Display for SignedBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.key, URL_SAFE_NO_PAD.encode(self.signature.0))
    }
}

/// The bytes in a text of base64url, which has one spelling: no padding, no line ends, and unused bits are zero.
fn decode_base64<const LENGTH: usize>(text: &str) -> Option<[u8; LENGTH]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use delta_base::hex::{decode_hex, encode_hex};

    /// Seed, public key, message and signature of RFC 8032, section 7.1.
    const VECTORS: [[&str; 4]; 4] = [
        [
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ],
        [
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ],
        [
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ],
        [
            "833fe62409237b9d62ec77587520911e9a759cec1d19755b7da901b96dca3d42",
            "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17ad9bef1177331a704",
        ],
    ];

    fn bytes<const LENGTH: usize>(digits: &str) -> [u8; LENGTH] {
        decode_hex(digits).unwrap().try_into().unwrap()
    }

    #[test]
    fn c_36_1_the_vectors_of_rfc_8032_are_signed_and_verified() {
        for [seed, public, message, signature] in VECTORS {
            let message = decode_hex(message).unwrap();
            let key = SigningKey::from_seed(&bytes(seed));
            let signed = key.sign(&message);
            assert_eq!(encode_hex(&key.public_key().0), public);
            assert_eq!(encode_hex(&signed.0), signature);
            assert!(key.public_key().verifies(&message, &signed));
            let longer = [&message[..], b"x"].concat();
            assert!(!key.public_key().verifies(&longer, &signed));
            for index in 0..SIGNATURE_BYTES {
                let mut other = signed;
                other.0[index] ^= 1;
                assert!(!key.public_key().verifies(&message, &other), "byte {index}");
            }
            let text = SignedBy { key: key.public_key(), signature: signed }.to_string();
            assert_eq!(text.len(), SCHEME.len() + 43 + 1 + 86);
            assert_eq!(SignedBy::parse(&text).map(|seal| seal.to_string()), Some(text));
        }
    }

    /// A signature whose second half is the group's order larger is the same point: RFC 8032 rejects it.
    #[test]
    fn c_36_1_a_signature_has_one_spelling() {
        let [seed, _, message, signature] = VECTORS[1];
        let order: [u8; 32] =
            bytes("edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010");
        let mut other = Signature(bytes(signature));
        let mut carry = 0;
        for (byte, added) in other.0[32..].iter_mut().zip(order) {
            let sum = u16::from(*byte) + u16::from(added) + carry;
            *byte = sum.to_le_bytes()[0];
            carry = sum >> 8;
        }
        let key = SigningKey::from_seed(&bytes(seed)).public_key();
        assert!(!key.verifies(&decode_hex(message).unwrap(), &other));
        let text = SignedBy { key, signature: Signature(bytes(signature)) }.to_string();
        let (first, last) = text.split_at(text.len() - 1);
        let spellings = [
            text.to_uppercase(),
            text.replacen("ed25519", "ED25519", 1),
            text.replacen('.', "=.", 1),
            format!("{text}="),
            format!("{text} "),
            format!("{text}\n"),
            first.to_owned(),
            // The last character has four bits that no byte has.
            format!("{first}{}", char::from(last.as_bytes()[0] + 1)),
            text.replacen('.', "..", 1),
            text.replacen("ed25519:", "", 1),
        ];
        for spelling in spellings {
            assert!(SignedBy::parse(&spelling).is_none(), "{spelling}");
        }
    }

    #[test]
    fn c_36_1_a_key_that_verifies_what_nobody_signed_is_refused() {
        let spelled = |digits: &str, sign: u8| {
            let mut key: [u8; 32] = bytes(digits);
            key[31] |= sign;
            PublicKey(key)
        };
        let zeros = "00".repeat(31);
        let ones = "ff".repeat(30);
        let mut refused = vec![format!("00{zeros}"), format!("01{zeros}")];
        refused.extend(SMALL_ORDER.map(str::to_owned));
        refused.extend((0xec..=0xff_u8).map(|low| format!("{low:02x}{ones}7f")));
        for digits in &refused {
            for sign in [0, 0x80] {
                let key = spelled(digits, sign);
                assert!(PublicKey::parse(&key.to_string()).is_err(), "{digits}");
                // The neutral point as R, and zero as S.
                let mut signature = [0; SIGNATURE_BYTES];
                signature[0] = 1;
                assert!(!key.verifies(b"anything", &Signature(signature)), "{digits}");
            }
        }
        for digits in [format!("02{zeros}"), format!("eb{ones}7f"), VECTORS[0][1].to_owned()] {
            let key = spelled(&digits, 0);
            assert_eq!(PublicKey::parse(&key.to_string()), Ok(key));
        }
    }

    #[test]
    fn a_public_key_as_pem_is_what_openssl_prints() {
        // `openssl pkey -pubout` for the first seed.
        let expected = "-----BEGIN PUBLIC KEY-----\n\
             MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
             -----END PUBLIC KEY-----\n";
        assert_eq!(SigningKey::from_seed(&bytes(VECTORS[0][0])).public_key().to_pem(), expected);
    }
}
