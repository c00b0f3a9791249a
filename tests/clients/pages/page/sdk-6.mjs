export { useChat } from 'react-sdk-6';
export { DefaultChatTransport } from 'ai6';
